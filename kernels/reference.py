"""What is right: attention in float64, written for reading. Nothing fast imports this."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.masks import causal_mask


def scores(q: Tensor, k: Tensor, scale: float, causal: bool = False) -> Tensor:
    """S = scale * Q K^T in float64, [batch, heads, queries, keys]; -inf where a key may not be seen."""
    group = q.shape[1] // k.shape[1]
    product = scale * q.double() @ k.double().repeat_interleave(group, dim=1).mT
    if causal:
        product = product.masked_fill(~causal_mask(*product.shape[-2:], q.device), -torch.inf)
    return product


def attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp in float64; a query that may see no key gives 0 and -inf."""
    weights = probabilities(q, k, scale, causal)
    group = q.shape[1] // v.shape[1]
    output = weights @ v.double().repeat_interleave(group, dim=1)
    return output, torch.logsumexp(scores(q, k, scale, causal), dim=-1)


def gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    grad_output: Tensor,
    grad_log_sum_exp: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v in float64, of the matrix formulas. Dao et al. 2022, appendix B.2."""
    group = q.shape[1] // k.shape[1]
    weights, grad_output = probabilities(q, k, scale, causal), grad_output.double()
    wide_k, wide_v = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    grad_weights = grad_output @ wide_v.mT
    delta = (weights * grad_weights).sum(-1, keepdim=True)
    if grad_log_sum_exp is not None:
        delta = delta - grad_log_sum_exp.double().unsqueeze(-1)
    grad_scores = weights * (grad_weights - delta)
    grad_q = scale * grad_scores @ wide_k
    grad_k, grad_v = scale * grad_scores.mT @ q.double(), weights.mT @ grad_output
    grad_k, grad_v = (g.unflatten(1, (-1, group)).sum(2) for g in (grad_k, grad_v))
    return grad_q, grad_k, grad_v


def probabilities(q: Tensor, k: Tensor, scale: float, causal: bool = False) -> Tensor:
    """P = softmax(S) in float64, all of it: only for small problems."""
    return torch.softmax(scores(q, k, scale, causal), dim=-1).nan_to_num(0.0)


def rows(q: Tensor, k: Tensor, index: Sequence[int] | Tensor, scale: float) -> Tensor:
    """Chosen rows of P in float64, [batch, heads, len(index), keys], in O(len(index) * keys) memory."""
    picked = q[:, :, torch.as_tensor(index, device=q.device)]
    return probabilities(picked, k, scale)
