"""FlashAttention-2 by its authors: the package flash-attn, 2.7 or later."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.peers.adapt import (
    Given,
    gradients,
    positive_scale,
    readable,
    some_see_nothing,
    tokens_first,
    with_infinity,
)
from kernels.peers.limits import Limits

LIMITS = Limits(
    "flash-attn-2",
    widest=256,
    grid=True,
    package="flash-attn",
    source="`pip install flash-attn` builds it where a CUDA compiler is at hand",
)


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """The package leaves +inf as the log-sum-exp of a query that sees nothing, where ours is -inf."""
    from flash_attn import flash_attn_func  # pyright: ignore[reportMissingImports]

    q, scale, _ = positive_scale(q, scale)
    views = tokens_first(readable(q), readable(k), readable(v))
    output, log_sum_exp, _ = flash_attn_func(
        *views, softmax_scale=scale, causal=causal, return_attn_probs=True
    )
    if some_see_nothing(q, k, causal):
        log_sum_exp = with_infinity(log_sum_exp, -math.inf)
    return output.transpose(1, 2), log_sum_exp


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """By the package's backward kernel itself: its autograd function drops the log-sum-exp's gradient."""
    return gradients(saved, grad_output, grad_log_sum_exp, forward, run)


def run(given: Given, saved: Saved, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    from flash_attn.flash_attn_interface import (  # pyright: ignore[reportMissingImports]
        _flash_attn_backward,
    )

    log_sum_exp = saved.log_sum_exp
    if some_see_nothing(given.q, given.k, saved.causal):
        log_sum_exp = with_infinity(log_sum_exp, math.inf)
    views = tokens_first(*given)
    grad_q, grad_k, grad_v = (torch.empty_like(view) for view in views[1:4])
    _flash_attn_backward(
        *views,
        log_sum_exp,
        grad_q,
        grad_k,
        grad_v,
        dropout_p=0.0,
        softmax_scale=scale,
        causal=saved.causal,
        window_size_left=-1,
        window_size_right=-1,
        softcap=0.0,
        alibi_slopes=None,
        deterministic=False,
    )
    grad_q, grad_k, grad_v = tokens_first(grad_q, grad_k, grad_v)
    return grad_q, grad_k, grad_v


IMPLEMENTATION = Implementation(
    name="flash-attn-2",
    summary="FlashAttention-2 by its authors, in CUDA.",
    forward=forward,
    supports=LIMITS.reason,
    backward=backward,
    peer=True,
)
