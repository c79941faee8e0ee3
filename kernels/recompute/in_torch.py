"""Rows, columns and products of P, and dP = dO V^T, in plain torch, for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

QUERIES_AT_ONCE = 256
"""Rows of P that a product holds at once."""


def rows(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) for the chosen i and all j."""
    scores = multiply(q[:, :, index], k)  # [batch, heads, picked, keys]
    weights = scores.mul_(scale).sub_(lse[:, :, index].unsqueeze(-1)).exp_()
    return hide(weights, index, every(k), q, k) if causal else weights


def columns(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) for all i and the chosen j."""
    scores = multiply(q, k[:, :, index])  # [batch, heads, queries, picked]
    weights = scores.mul_(scale).sub_(lse.unsqueeze(-1)).exp_()
    return hide(weights, every(q), index, q, k) if causal else weights


def product(
    w: Tensor | None, q: Tensor, k: Tensor, lse: Tensor, scale: float, causal: bool
) -> Tensor:
    """sum_i w_i exp(scale * q_i . k_j - lse_i) for all j, QUERIES_AT_ONCE rows of P at a time."""
    total = q.new_zeros(*q.shape[:2], k.shape[2], dtype=torch.float32)
    # exp(... - inf) is 0: a query that sees nothing gives nothing.
    lse = lse.masked_fill(lse == -torch.inf, torch.inf)
    wide_k = k.float()  # once, not in every block
    for index in every(q).split(QUERIES_AT_ONCE):
        part = rows(q, wide_k, lse, index, scale, causal)
        if w is None:
            total += part.sum(2)
        else:
            total += (w[:, :, index].float().unsqueeze(2) @ part).squeeze(2)
    return total


def gradient_rows(grad_output: Tensor, v: Tensor, index: Tensor, causal: bool) -> Tensor:
    """dO_i . v_j for the chosen i and all j."""
    grads = multiply(grad_output[:, :, index], v)
    return hide(grads, index, every(v), grad_output, v) if causal else grads


def gradient_columns(grad_output: Tensor, v: Tensor, index: Tensor, causal: bool) -> Tensor:
    """dO_i . v_j for all i and the chosen j."""
    grads = multiply(grad_output, v[:, :, index])
    return hide(grads, every(grad_output), index, grad_output, v) if causal else grads


def multiply(q: Tensor, k: Tensor) -> Tensor:
    """q k^T in float32, [batch, heads, queries, keys]; k's heads are shared by groups of q's."""
    batch, heads, queries, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // max(kv_heads, 1), queries, dim).float()
    scores = grouped @ k.unsqueeze(2).float().mT  # [batch, kv_heads, group, queries, keys]
    return scores.view(batch, heads, queries, k.shape[2])


def hide(weights: Tensor, query: Tensor, key: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Write 0, in place, where the query may not see the key. -> [batch, heads, len(query), len(key)]"""
    last_seen = query + k.shape[2] - q.shape[2]
    return weights.masked_fill_(key > last_seen.unsqueeze(-1), 0.0)


def every(tensor: Tensor) -> Tensor:
    """The indices of all tokens of [batch, heads, tokens, head_dim]."""
    return torch.arange(tensor.shape[2], device=tensor.device)
