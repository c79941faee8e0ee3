"""The textbook way in plain torch: all of S and P are stored. This is the baseline, not the truth.

The truth in float64 is `kernels.reference`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.masks import causal_mask
from kernels.problem import Problem

MOST_SCORES = 2**26
"""Scores that are copied to float32 at a time: a quarter of a gigabyte."""


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    output, log_sum_exp, _ = forward_keeping(q, k, v, scale, causal)
    return output, log_sum_exp


def forward_keeping(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Three steps in the inputs' own dtype, each with its N x N tensor in memory; P is kept."""
    group = q.shape[1] // k.shape[1]
    scores = (q @ for_each_head(k, group).mT) * scale  # [batch, heads, queries, keys]
    if causal:
        scores = scores.masked_fill(~causal_mask(*scores.shape[-2:], scores.device), -torch.inf)
    probabilities = torch.softmax(scores, dim=-1)
    if causal:
        # A row that may see nothing gives 0, not the NaN of an empty softmax.
        probabilities = probabilities.nan_to_num(0.0)
    # A few rows at a time, so that the float32 copy of the scores stays small.
    rows = scores.flatten(0, 2)
    parts = rows.split(max(1, MOST_SCORES // rows.shape[1]))
    log_sum_exp = torch.cat([part.float().logsumexp(-1) for part in parts])
    output = probabilities @ for_each_head(v, group)
    return output, log_sum_exp.view(scores.shape[:3]), probabilities


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """From the stored P. Dao et al. 2022, appendix B.2: dV = P^T dO, dS = P * (dO V^T - delta)."""
    group = saved.q.shape[1] // saved.k.shape[1]
    probabilities = saved.kept
    grad_v = probabilities.mT @ grad_output
    grad_probabilities = grad_output @ for_each_head(saved.v, group).mT
    delta = (grad_output.float() * saved.output.float()).sum(-1, keepdim=True)
    if grad_log_sum_exp is not None:
        delta = delta - grad_log_sum_exp.unsqueeze(-1)
    grad_scores = probabilities * (grad_probabilities - delta.to(grad_probabilities.dtype))
    grad_q = (grad_scores @ for_each_head(saved.k, group)) * saved.scale
    grad_k = (grad_scores.mT @ saved.q) * saved.scale
    return grad_q, summed_over_group(grad_k, group), summed_over_group(grad_v, group)


def for_each_head(tensor: Tensor, group: int) -> Tensor:
    """Keys or values once for each query head, [batch, kv_heads, n, d] -> [batch, heads, n, d]."""
    return tensor.repeat_interleave(group, dim=1) if group > 1 else tensor


def summed_over_group(gradient: Tensor, group: int) -> Tensor:
    """The gradient of what `for_each_head` repeats, [batch, heads, n, d] -> [batch, kv_heads, n, d]."""
    return gradient.unflatten(1, (-1, group)).sum(2) if group > 1 else gradient


def empty_kept(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty(*q.shape[:3], k.shape[2])


def supports(problem: Problem, device: torch.device) -> str | None:
    return None


IMPLEMENTATION = Implementation(
    name="eager",
    summary="Plain torch; stores the whole N x N matrix.",
    forward=forward,
    supports=supports,
    backward=backward,
    forward_keeping=forward_keeping,
    empty_kept=empty_kept,
)
