"""FlashAttention-2 as torch ships it, called by its own operator, so that nothing else can be chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.peers.adapt import Given, gradients, positive_scale, readable
from kernels.peers.limits import Limits

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
LIMITS = Limits("sdpa-flash", widest=256, square_causal=True, grid=True)


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Shared heads are read in place; inputs are copied only where they are not aligned."""
    q, scale, _ = positive_scale(q, scale)
    found = FORWARD(readable(q), readable(k), readable(v), 0.0, causal, scale=scale)
    return found[0], found[1]


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return gradients(saved, grad_output, grad_log_sum_exp, forward, run)


def run(given: Given, saved: Saved, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    # Never read without dropout, but they must be there. No cumulative lengths: one length for all.
    seed = given.q.new_empty(2, dtype=torch.uint64)
    offset = given.q.new_empty((), dtype=torch.uint64)
    return BACKWARD(
        *given,
        saved.log_sum_exp,
        None,
        None,
        given.q.shape[2],
        given.k.shape[2],
        0.0,
        saved.causal,
        seed,
        offset,
        scale=scale,
    )


IMPLEMENTATION = Implementation(
    name="sdpa-flash",
    summary="FlashAttention-2 as torch ships it, in CUDA.",
    forward=forward,
    supports=LIMITS.reason,
    backward=backward,
    peer=True,
)
