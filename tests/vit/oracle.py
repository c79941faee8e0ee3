"""transformers' DINOv2 as the judge of ours; a dependency of the tests only."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
)

from vit.bench.peer import load_peer, save_for_peer
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
    save_for_peer(model, folder)
    return load_peer(folder, "eager")


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
