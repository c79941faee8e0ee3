"""FlexAttention: torch writes a Triton kernel for the problem and compiles it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from kernels.implementation import Implementation
from kernels.problem import Problem
from kernels.triton_mode import reason_against_gpu

NARROWEST, WIDEST = 16, 256
MASK_BLOCK = 128
"""Queries and keys of one block of torch's mask, as torch cuts it unless told otherwise."""

PROBLEMS_KEPT = 1024
"""Compiled kernels that one process may hold, one for each shape; torch's own limit of 8 is soon met."""


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """The first call for a shape compiles for seconds; shared heads are read in place."""
    blocks = causal_blocks(q.shape[2], k.shape[2], q.device) if causal else None
    group = q.shape[1] // k.shape[1]
    packed = group > 1 and group * q.shape[2] > MASK_BLOCK
    return compiled()(q, k, v, blocks, scale, group > 1, packed)


@cache
def compiled() -> Callable[..., Any]:
    """flex_attention compiled for each shape by itself, as its speed wants it."""
    from torch._dynamo import config as settings
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    def attend(q, k, v, blocks, scale, grouped, packed):
        asked = AuxRequest(lse=True)
        # Of few queries torch packs those of a group into one tile, and finds no kernel where that is
        # longer than a block of the mask. Its kernel for many queries takes any.
        options: Any = {"FORCE_USE_FLEX_ATTENTION": True} if packed else {}
        output, found = flex_attention(
            q, k, v, block_mask=blocks, scale=scale, enable_gqa=grouped, return_aux=asked,
            kernel_options=options,
        )  # fmt: skip
        return output, found.lse

    settings.recompile_limit = max(settings.recompile_limit, PROBLEMS_KEPT)
    settings.accumulated_recompile_limit = max(settings.accumulated_recompile_limit, PROBLEMS_KEPT)
    # The whole graph or an error: uncompiled, flex_attention would store the N x N matrix in silence.
    return torch.compile(attend, fullgraph=True, dynamic=False)


@lru_cache(maxsize=8)
def causal_blocks(queries: int, keys: int, device: torch.device):
    """Which tiles hold keys that may be seen, aligned to the bottom right.

    torch builds it from the whole mask of queries x keys bytes, once for each pair of lengths.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    shift = keys - queries

    def visible(batch, head, query, key):
        return key <= query + shift

    return create_block_mask(
        visible, None, None, queries, keys, device=device, BLOCK_SIZE=MASK_BLOCK
    )


def supports(problem: Problem, device: torch.device) -> str | None:
    if device.type == "cpu":
        return (
            "flex needs a C++ compiler on the CPU and is left to GPUs here; choose torch-cpu-flash."
        )
    if device.type != "cuda":
        return "flex runs on an NVIDIA GPU only; on this device choose auto."
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; it comes with requirements.txt on Linux."
    if not NARROWEST <= problem.head_dim <= WIDEST:
        return (
            f"flex takes a head of {NARROWEST} to {WIDEST} dimensions, "
            f"not {problem.head_dim}; choose fa2 or eager."
        )
    return reason_against_gpu(problem, device)


IMPLEMENTATION = Implementation(
    name="flex",
    summary="torch's FlexAttention: a Triton kernel that torch writes and compiles.",
    forward=forward,
    supports=supports,
    differentiable=True,
    peer=True,
)
