"""What other people's kernels need around them to keep our promises: alignment, any scale, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.implementation import Forward, Saved
from kernels.peers.limits import STEP


class Given(NamedTuple):
    """What a backward kernel reads, each readable to it, for a positive scale."""

    grad_output: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    output: Tensor


Kernel = Callable[[Given, Saved, float], tuple[Tensor, Tensor, Tensor]]
"""(given, saved, scale) -> gradients of q, k and v; of `saved`, log_sum_exp and causal are used."""


def readable(tensor: Tensor) -> Tensor:
    """The same values where 16 bytes can be loaded at once; copied only where they cannot.

    These kernels read the last dimension as if its stride were 1, and rows as if they were aligned.
    """
    size = tensor.element_size()
    *rows, last = tensor.stride()
    if last == 1 and tensor.data_ptr() % STEP == 0 and not any(s * size % STEP for s in rows):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def positive_scale(q: Tensor, scale: float) -> tuple[Tensor, float, float]:
    """(sign * q, positive scale, sign): most of these kernels take the maximum before they scale.

    With a scale below 0 that maximum is the least score, and with 0 a masked score becomes -inf * 0.
    """
    if scale > 0:
        return q, scale, 1.0
    sign = -1.0 if scale < 0 else 0.0
    return q * sign, abs(scale) or 1.0, sign


def gradients(
    saved: Saved,
    grad_output: Tensor,
    grad_log_sum_exp: Tensor | None,
    forward: Forward,
    kernel: Kernel,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v by kernels that know no gradient of the log-sum-exp.

    A gradient g of the log-sum-exp adds g * P to dS. What that adds to dQ = scale * dS K is
    scale * g * (P K), a forward pass with K for V; what it adds to dK = scale * dS^T Q is
    P^T (scale * g * Q), the dV of a backward pass with scale * g * Q for dO.
    """
    q, scale, sign = positive_scale(saved.q, saved.scale)
    given = Given(*map(readable, (grad_output, q, saved.k, saved.v, saved.output)))
    grad_q, grad_k, grad_v = kernel(given, saved, scale)
    if grad_log_sum_exp is not None:
        weight = scale * grad_log_sum_exp.unsqueeze(-1)  # float32 [batch, heads, queries, 1]
        mean_key, _ = forward(q, saved.k, saved.k, scale, saved.causal)
        grad_q = (grad_q + weight * mean_key).to(q.dtype)
        weighted = readable((weight * q).to(q.dtype))
        grad_k = grad_k + kernel(given._replace(grad_output=weighted), saved, scale)[2]
    return grad_q if sign == 1 else grad_q * sign, grad_k, grad_v


def tokens_first(*tensors: Tensor) -> list[Tensor]:
    """[batch, heads, tokens, head_dim] -> views [batch, tokens, heads, head_dim], and back."""
    return [tensor.transpose(1, 2) for tensor in tensors]


def with_infinity(log_sum_exp: Tensor, saw_nothing: float) -> Tensor:
    """The same, with `saw_nothing` (inf or -inf) for the other infinity."""
    return log_sum_exp.masked_fill(log_sum_exp == -saw_nothing, saw_nothing)


def some_see_nothing(q: Tensor, k: Tensor, causal: bool) -> bool:
    """Are there queries that may see no key?"""
    return causal and q.shape[2] > k.shape[2]
