"""DINOv2's names for its tensors, in the files of the Hugging Face hub, and ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

from vit.config import ViTConfig

UNUSED = ("embeddings.mask_token",)
"""Only training needs these; every other name must be used."""

BLOCK = {
    "norm1": "norm1",
    "attention.output": "attention.output.dense",
    "norm2": "norm2",
    "mlp.widen": "mlp.fc1",
    "mlp.narrow": "mlp.fc2",
}
"""Modules with a weight and a bias: ours, theirs."""


class Tensors(Protocol):
    """Tensors by name, made or read when they are asked for."""

    def __getitem__(self, name: str, /) -> Tensor: ...


def theirs(config: ViTConfig) -> dict[str, list[int]]:
    """Every tensor that a DINOv2 file of this config holds, with its shape, but for UNUSED."""
    dim, wide, patch = config.dim, config.mlp_dim, config.patch
    shapes = {
        "embeddings.cls_token": [1, 1, dim],
        "embeddings.position_embeddings": [1, 1 + config.position_grid**2, dim],
        "embeddings.patch_embeddings.projection.weight": [dim, 3, patch, patch],
        "embeddings.patch_embeddings.projection.bias": [dim],
        "layernorm.weight": [dim],
        "layernorm.bias": [dim],
    }
    if config.registers:
        shapes["embeddings.register_tokens"] = [1, config.registers, dim]
    modules = {name: [dim, dim] for name in attention_parts("")}
    modules |= {"attention.output.dense": [dim, dim], "norm1": [dim], "norm2": [dim]}
    modules |= {"mlp.fc1": [wide, dim], "mlp.fc2": [dim, wide]}
    for layer in range(config.layers):
        block = f"encoder.layer.{layer}."
        for module, shape in modules.items():
            shapes[f"{block}{module}.weight"] = shape
            shapes[f"{block}{module}.bias"] = shape[:1]
        shapes[f"{block}layer_scale1.lambda1"] = [dim]
        shapes[f"{block}layer_scale2.lambda1"] = [dim]
    return shapes


def from_dinov2(tensors: Tensors, config: ViTConfig) -> dict[str, Tensor]:
    """The same weights under our names.

    All are views of what is given but `attention.qkv`, which stacks queries, keys and values.
    """
    positions = tensors["embeddings.position_embeddings"]  # [1, 1 + patches, dim], class first
    ours = {
        "embedding.class_token": tensors["embeddings.cls_token"],
        "embedding.registers": registers(tensors, config),
        "embedding.class_position": positions[:, :1],
        "embedding.patch_positions": positions[:, 1:],
    }
    pairs = {"embedding.projection": "embeddings.patch_embeddings.projection", "norm": "layernorm"}
    for layer in range(config.layers):
        block, source = f"blocks.{layer}.", f"encoder.layer.{layer}."
        pairs |= {block + mine: source + other for mine, other in BLOCK.items()}
        ours[f"{block}scale1"] = tensors[f"{source}layer_scale1.lambda1"]
        ours[f"{block}scale2"] = tensors[f"{source}layer_scale2.lambda1"]
        for kind in ("weight", "bias"):
            parts = [tensors[f"{part}.{kind}"] for part in attention_parts(source)]
            ours[f"{block}attention.qkv.{kind}"] = torch.cat(parts)
    for mine, other in pairs.items():
        ours[f"{mine}.weight"] = tensors[f"{other}.weight"]
        ours[f"{mine}.bias"] = tensors[f"{other}.bias"]
    return ours


def attention_parts(block: str) -> Iterator[str]:
    """The three projections of a block, in the order in which ours are stacked."""
    return (f"{block}attention.attention.{part}" for part in ("query", "key", "value"))


def registers(tensors: Tensors, config: ViTConfig) -> Tensor:
    """The register tokens, [1, registers, dim]; a model without any has an empty table."""
    if config.registers:
        return tensors["embeddings.register_tokens"]
    return torch.zeros(1, 0, config.dim, dtype=tensors["embeddings.cls_token"].dtype)


def used(shapes: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """The shapes without the tensors that only training needs."""
    return {name: shape for name, shape in shapes.items() if name not in UNUSED}
