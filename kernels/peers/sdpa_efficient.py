"""xFormers' memory-efficient attention as torch ships it, called by its own operator."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.eager import for_each_head, summed_over_group
from kernels.implementation import Implementation, Saved
from kernels.peers.adapt import Given, gradients, positive_scale, readable
from kernels.peers.limits import BYTES, Limits

FORWARD = torch.ops.aten._scaled_dot_product_efficient_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
LIMITS = Limits("sdpa-efficient", dtypes=tuple(BYTES), square_causal=True, grid=True)
PADDED = 32
"""The log-sum-exp of a head is as long as the queries, rounded up to a multiple of this."""


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Shared heads are repeated: the kernel wants keys and values once for each query head."""
    group, queries = q.shape[1] // k.shape[1], q.shape[2]
    q, scale, _ = positive_scale(q, scale)
    k, v = readable(for_each_head(k, group)), readable(for_each_head(v, group))
    output, log_sum_exp, _, _ = FORWARD(readable(q), k, v, None, True, 0.0, causal, scale=scale)
    return output, log_sum_exp[..., :queries].contiguous()


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return gradients(saved, grad_output, grad_log_sum_exp, forward, run)


def run(given: Given, saved: Saved, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    grad_output, q, k, v, output = given
    group = q.shape[1] // k.shape[1]
    short = -q.shape[2] % PADDED
    # Infinity is what the forward kernel writes behind the end: exp(score - inf) is 0.
    padded = pad(saved.log_sum_exp, (0, short), value=math.inf) if short else saved.log_sum_exp
    seed = q.new_empty((), dtype=torch.int64)  # never read without dropout, but it must be there
    grad_q, grad_k, grad_v, _ = BACKWARD(
        grad_output,
        q,
        for_each_head(k, group),
        for_each_head(v, group),
        None,
        output,
        padded,
        seed,
        seed,
        0.0,
        [True, True, True, False],
        saved.causal,
        scale=scale,
    )
    return grad_q, summed_over_group(grad_k, group), summed_over_group(grad_v, group)


IMPLEMENTATION = Implementation(
    name="sdpa-efficient",
    summary="xFormers' memory-efficient attention, as torch ships it.",
    forward=forward,
    supports=LIMITS.reason,
    backward=backward,
    peer=True,
)
