"""transformers' DINOv2 with our weights: the judge of the tests and the peer of the benchmarks.

transformers is a developer's tool, never needed by the app.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from vit.model import VisionTransformer


def save_for_peer(model: VisionTransformer, folder: Path) -> None:
    """Write our weights as a checkpoint folder that transformers' own loader reads."""
    from transformers import Dinov2Config

    folder.mkdir(parents=True, exist_ok=True)
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


def load_peer(
    folder: Path,
    attention: str = "eager",
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Any:
    """transformers' `Dinov2Model` from that folder.

    `attention` is transformers' name: "eager" hands out its matrices, "sdpa" is fast and cannot.
    """
    from transformers import Dinov2Model

    loaded: Any = Dinov2Model.from_pretrained(
        folder, attn_implementation=attention, dtype=dtype, output_loading_info=True
    )
    peer, report = loaded
    if report["missing_keys"] or report["unexpected_keys"]:
        raise RuntimeError(f"transformers did not take our weights whole: {report}")
    return peer.to(device).eval()


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
    for i, block in enumerate(model.stack):
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
    return {name: tensor.detach().float().cpu().clone() for name, tensor in theirs.items()}
