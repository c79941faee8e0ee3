"""FlashAttention-3 by its authors, for Hopper: the package flash_attn_3."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.peers.adapt import Given, gradients, positive_scale, readable, tokens_first
from kernels.peers.limits import Limits
from kernels.problem import Problem

LIMITS = Limits(
    "flash-attn-3",
    widest=256,
    package="flash_attn_3",
    source="it is built from the folder hopper of the FlashAttention repository",
)


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    from flash_attn_interface import (  # pyright: ignore[reportMissingImports]
        flash_attn_func,
    )

    q, scale, _ = positive_scale(q, scale)
    views = tokens_first(readable(q), readable(k), readable(v))
    output, log_sum_exp = flash_attn_func(
        *views, softmax_scale=scale, causal=causal, return_attn_probs=True
    )
    return output.transpose(1, 2), log_sum_exp


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """By the package's backward kernel itself: its autograd function drops the log-sum-exp's gradient."""
    return gradients(saved, grad_output, grad_log_sum_exp, forward, run)


def run(given: Given, saved: Saved, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    from flash_attn_interface import (  # pyright: ignore[reportMissingImports]
        _flash_attn_backward,
    )

    views = tokens_first(*given)
    grad_q, grad_k, grad_v = (torch.empty_like(view) for view in views[1:4])
    # By position, because its names changed between releases; the six without a value are lengths.
    _flash_attn_backward(
        *views,
        saved.log_sum_exp,
        None,
        None,
        None,
        None,
        None,
        None,
        grad_q,
        grad_k,
        grad_v,
        scale,
        saved.causal,
    )
    grad_q, grad_k, grad_v = tokens_first(grad_q, grad_k, grad_v)
    return grad_q, grad_k, grad_v


def supports(problem: Problem, device: torch.device) -> str | None:
    reason = LIMITS.reason(problem, device)
    if reason is None and torch.cuda.get_device_capability(device) >= (10, 0):
        return "flash-attn-3 has kernels up to Hopper (9.0) only; on this GPU choose flash-attn-4."
    return reason


IMPLEMENTATION = Implementation(
    name="flash-attn-3",
    summary="FlashAttention-3 by its authors, for Hopper, in CUDA.",
    forward=forward,
    supports=supports,
    backward=backward,
    peer=True,
)
