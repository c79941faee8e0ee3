"""Rows and columns of P in plain torch, for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor


def rows(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) for the chosen i and all j."""
    picked = q[:, :, index]  # [batch, heads, picked, dim]
    probabilities = rebuild(picked, k, lse[:, :, index].unsqueeze(-1), scale)
    if causal:
        last_seen = index + k.shape[2] - q.shape[2]
        unseen = torch.arange(k.shape[2], device=k.device) > last_seen.unsqueeze(-1)
        probabilities.masked_fill_(unseen, 0.0)
    return probabilities


def columns(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) for all i and the chosen j."""
    probabilities = rebuild(q, k[:, :, index], lse.unsqueeze(-1), scale)
    if causal:
        last_seen = torch.arange(q.shape[2], device=q.device) + k.shape[2] - q.shape[2]
        probabilities.masked_fill_(index > last_seen.unsqueeze(-1), 0.0)
    return probabilities


def rebuild(q: Tensor, k: Tensor, lse: Tensor, scale: float) -> Tensor:
    """exp(scale * q k^T - lse) in float32; k's heads are shared by groups of q's."""
    batch, heads, queries, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // max(kv_heads, 1), queries, dim).float()
    scores = grouped @ k.unsqueeze(2).float().mT  # [batch, kv_heads, group, queries, keys]
    scores = scores.view(batch, heads, queries, k.shape[2])
    return scores.mul_(scale).sub_(lse).exp_()
