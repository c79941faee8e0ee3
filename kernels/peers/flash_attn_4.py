"""FlashAttention-4 by its authors, in NVIDIA's CuTe DSL: the package flash-attn-4."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.peers.adapt import positive_scale, readable, tokens_first
from kernels.peers.limits import Limits
from kernels.problem import Problem

LIMITS = Limits(
    "flash-attn-4",
    widest=256,
    package="flash-attn-4",
    source="`pip install flash-attn-4` brings it",
)
WIDEST = 128
"""Except on Hopper, which takes any width up to 256, and on data-centre Blackwell, which takes 256 too."""


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """The first call for a width and mask compiles for seconds."""
    from flash_attn.cute import flash_attn_func  # pyright: ignore[reportMissingImports]

    q, scale, _ = positive_scale(q, scale)
    views = tokens_first(readable(q), readable(k), readable(v))
    output, log_sum_exp = flash_attn_func(
        *views, softmax_scale=scale, causal=causal, return_lse=True
    )
    return output.transpose(1, 2), log_sum_exp


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """By the package's backward kernel itself, which takes a gradient of the log-sum-exp as well."""
    from flash_attn.cute.interface import (  # pyright: ignore[reportMissingImports]
        _flash_attn_bwd,
    )

    q, scale, sign = positive_scale(saved.q, saved.scale)
    tensors = map(readable, (q, saved.k, saved.v, saved.output, grad_output))
    found = _flash_attn_bwd(
        *tokens_first(*tensors),
        saved.log_sum_exp,
        softmax_scale=scale,
        causal=saved.causal,
        dlse=grad_log_sum_exp,
    )
    grad_q, grad_k, grad_v = tokens_first(*found)
    return grad_q if sign == 1 else grad_q * sign, grad_k, grad_v


def supports(problem: Problem, device: torch.device) -> str | None:
    reason = LIMITS.reason(problem, device)
    if reason is not None or problem.head_dim <= WIDEST:
        return reason
    generation = torch.cuda.get_device_capability(device)[0]
    if generation == 9 or (generation in (10, 11) and problem.head_dim == LIMITS.widest):
        return None
    return (
        f"flash-attn-4 takes a head of at most {WIDEST} dimensions on this GPU, "
        f"not {problem.head_dim}; choose fa2."
    )


IMPLEMENTATION = Implementation(
    name="flash-attn-4",
    summary="FlashAttention-4 by its authors, in CuTe DSL.",
    forward=forward,
    supports=supports,
    backward=backward,
    peer=True,
)
