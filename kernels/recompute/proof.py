"""How far rebuilt numbers are from float64, on sampled rows or keys, in O(samples * tokens) memory.

Each function takes a result and what it was rebuilt from, and returns the largest absolute error; NaN
where the result holds one. Small enough to stand beside every map, at any number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import reference

Index = Sequence[int] | Tensor


def rows_error(
    rows: Tensor, q: Tensor, k: Tensor, index: Index, scale: float, causal: bool = False
) -> float:
    """rows = P[:, :, index], against the float64 softmax of the same scores: it proves the lse as well."""
    index = as_index(index, q)
    scores = reference.scores(q[:, :, index], k, scale)  # [batch, heads, picked, keys]
    if causal:
        scores.masked_fill_(hidden(index, every(k), q, k), -torch.inf)
    # A query that sees nothing: softmax gives NaN, and the truth is 0.
    return largest(rows, torch.softmax(scores, dim=-1).masked_fill(scores == -torch.inf, 0.0))


def columns_error(
    columns: Tensor,
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    index: Index,
    scale: float,
    causal: bool = False,
) -> float:
    """columns = P[..., index], against float64 scores and the given lse."""
    return largest(columns, true_columns(q, k, lse, index, scale, causal))


def product_error(
    product: Tensor,
    w: Tensor | None,
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    index: Index,
    scale: float,
    causal: bool = False,
) -> float:
    """product = w^T P, all of it; compared at the keys `index` with float64 scores and the given lse."""
    columns = true_columns(q, k, lse, index, scale, causal)
    w = q.new_ones(1) if w is None else w
    truth = (columns * w.double().expand(q.shape[:3]).unsqueeze(-1)).sum(2)
    return largest(product[..., as_index(index, q)], truth)


def gradient_rows_error(
    rows: Tensor, grad_output: Tensor, v: Tensor, index: Index, causal: bool = False
) -> float:
    """rows = dP[:, :, index] with dP = dO V^T."""
    index = as_index(index, v)
    truth = reference.scores(grad_output[:, :, index], v, 1.0)
    if causal:
        truth.masked_fill_(hidden(index, every(v), grad_output, v), 0.0)
    return largest(rows, truth)


def true_columns(
    q: Tensor, k: Tensor, lse: Tensor, index: Index, scale: float, causal: bool
) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) in float64, [batch, heads, queries, len(index)]; 0 where lse is -inf."""
    index = as_index(index, q)
    scores = reference.scores(q, k[:, :, index], scale)
    if causal:
        scores.masked_fill_(hidden(every(q), index, q, k), -torch.inf)
    sees = (lse != -torch.inf).unsqueeze(-1)
    return torch.where(sees, scores - lse.double().unsqueeze(-1), -torch.inf).exp()


def hidden(query: Tensor, key: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """True where the causal mask hides the key, [len(query), len(key)]; see `kernels.masks`."""
    return key > query.unsqueeze(-1) + k.shape[2] - q.shape[2]


def as_index(index: Index, tensor: Tensor) -> Tensor:
    """The sampled places on the tensor's device; an empty list too."""
    return torch.as_tensor(index, dtype=torch.int64, device=tensor.device)


def every(tensor: Tensor) -> Tensor:
    """The indices of all tokens of [batch, heads, tokens, head_dim]."""
    return torch.arange(tensor.shape[2], device=tensor.device)


def largest(result: Tensor, truth: Tensor) -> float:
    """Largest absolute difference; NaN stays NaN, and of nothing it is 0."""
    if result.shape != truth.shape:
        raise ValueError(f"the result must be {list(truth.shape)}, not {list(result.shape)}")
    return (result.double() - truth).abs().max().item() if truth.numel() else 0.0
