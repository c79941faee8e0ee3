"""The textbook way in plain torch: all of S and P are stored. This is the baseline, not the truth.

The truth in float64 is `kernels.reference`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation
from kernels.masks import causal_mask
from kernels.problem import Problem


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Three steps in the inputs' own dtype, each with its N x N tensor in memory."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v)) if group > 1 else (k, v)
    scores = (q @ k.mT) * scale  # [batch, heads, queries, keys]
    if causal:
        scores = scores.masked_fill(~causal_mask(*scores.shape[-2:], scores.device), -torch.inf)
    probabilities = torch.softmax(scores, dim=-1)
    if causal:
        # A row that may see nothing gives 0, not the NaN of an empty softmax.
        probabilities = probabilities.nan_to_num(0.0)
    # Head by head, so that the float32 copy of the scores stays small.
    log_sum_exp = [s.float().logsumexp(-1) for s in scores.flatten(0, 1)]
    return probabilities @ v, torch.stack(log_sum_exp).view(scores.shape[:3])


def supports(problem: Problem, device: torch.device) -> str | None:
    return None


IMPLEMENTATION = Implementation(
    name="eager",
    summary="Plain torch; stores the whole N x N matrix.",
    forward=forward,
    supports=supports,
    differentiable=True,
)
