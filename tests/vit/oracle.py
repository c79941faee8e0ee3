"""transformers' DINOv2 as the judge of ours; a dependency of the tests only."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
)

from vit.model import VisionTransformer

TINY = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 56,
    "patch_size": 14,
    "mlp_ratio": 3,
    "layer_norm_eps": 1e-5,
}


def judge_of(model: VisionTransformer, folder: Path) -> nn.Module:
    """transformers' model with our weights, through a checkpoint file and its own loader."""
    folder.mkdir()
    save_file(their_tensors(model), folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config
    Dinov2Config(
        hidden_size=config.dim,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        image_size=config.position_grid * config.patch,
        patch_size=config.patch,
        layer_norm_eps=config.norm_eps,
    ).save_pretrained(folder)
    judge, report = Dinov2Model.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return judge.eval()


def their_tensors(model: VisionTransformer) -> dict[str, Tensor]:
    """Our weights under the names of a hub file, written out here independently of the loader."""
    embedding = model.embedding
    positions = torch.cat([embedding.class_position, embedding.patch_positions], dim=1)
    theirs = {
        "embeddings.cls_token": embedding.class_token,
        "embeddings.mask_token": torch.zeros(1, model.config.dim),
        "embeddings.position_embeddings": positions,
        "embeddings.patch_embeddings.projection.weight": embedding.projection.weight,
        "embeddings.patch_embeddings.projection.bias": embedding.projection.bias,
        "layernorm.weight": model.norm.weight,
        "layernorm.bias": model.norm.bias,
    }
    for i, block in enumerate(model.blocks):
        at = f"encoder.layer.{i}"
        for kind in ("weight", "bias"):
            query, key, value = getattr(block.attention.qkv, kind).chunk(3)
            theirs[f"{at}.attention.attention.query.{kind}"] = query
            theirs[f"{at}.attention.attention.key.{kind}"] = key
            theirs[f"{at}.attention.attention.value.{kind}"] = value
            theirs[f"{at}.attention.output.dense.{kind}"] = getattr(block.attention.output, kind)
            theirs[f"{at}.norm1.{kind}"] = getattr(block.norm1, kind)
            theirs[f"{at}.norm2.{kind}"] = getattr(block.norm2, kind)
            theirs[f"{at}.mlp.fc1.{kind}"] = getattr(block.mlp.widen, kind)
            theirs[f"{at}.mlp.fc2.{kind}"] = getattr(block.mlp.narrow, kind)
        theirs[f"{at}.layer_scale1.lambda1"] = block.scale1
        theirs[f"{at}.layer_scale2.lambda1"] = block.scale2
    return {name: tensor.detach().clone() for name, tensor in theirs.items()}


def save_tiny(folder: Path, registers: int = 0, **save_options) -> nn.Module:
    """A tiny random checkpoint as `save_pretrained` writes it, and the model that it came from."""
    if registers:
        config = Dinov2WithRegistersConfig(**TINY, num_register_tokens=registers)
        judge = Dinov2WithRegistersModel._from_config(config, attn_implementation="eager")
    else:
        judge = Dinov2Model._from_config(Dinov2Config(**TINY), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in judge.named_parameters():
            # Away from the zeros and ones they start from, and attention far from even.
            parameter.normal_(std=0.3 if "attention" in name else 0.1)
            if ("norm" in name and name.endswith("weight")) or "lambda" in name:
                parameter.add_(1.0)
    judge.save_pretrained(folder, **save_options)
    return judge.eval()


def change_settings(folder: Path, **changes: object) -> None:
    """Rewrite some of the numbers in a checkpoint's config.json; None takes one out."""
    path = folder / "config.json"
    settings = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in settings.items() if value is not None}
    path.write_text(json.dumps(kept))
