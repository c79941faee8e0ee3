"""Any part of P from Q, K and the log-sum-exp, in memory no larger than the answer."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from kernels.problem import Problem
from kernels.recompute import hopper, in_torch
from kernels.triton_mode import reason_against

MAX_HEAD_DIM = 256
"""The widest head that the Triton kernels hold on chip."""


def rows(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """P[:, :, index, :], float32 [batch, heads, len(index), keys]."""
    return backend(q, k).rows(q, k, lse, index, scale, causal)


def columns(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """P[:, :, :, index], float32 [batch, heads, queries, len(index)]."""
    return backend(q, k).columns(q, k, lse, index, scale, causal)


def product(
    w: Tensor | None, q: Tensor, k: Tensor, lse: Tensor, scale: float, causal: bool
) -> Tensor:
    """w^T P, float32 [batch, heads, keys]; w [batch, heads, queries], any strides, None for ones."""
    if hopper.takes(q, k, causal):
        from kernels.recompute import products_hopper

        return products_hopper.product(w, q, k, lse, scale)
    return backend(q, k).product(w, q, k, lse, scale, causal)


def gradient_rows(grad_output: Tensor, v: Tensor, index: Tensor, causal: bool) -> Tensor:
    """dP[:, :, index, :] with dP = dO V^T, float32 [batch, heads, len(index), keys]."""
    return backend(grad_output, v).gradient_rows(grad_output, v, index, causal)


def gradient_columns(grad_output: Tensor, v: Tensor, index: Tensor, causal: bool) -> Tensor:
    """dP[:, :, :, index], float32 [batch, heads, queries, len(index)]."""
    return backend(grad_output, v).gradient_columns(grad_output, v, index, causal)


def backend(queries_side: Tensor, keys_side: Tensor) -> ModuleType:
    """The Triton kernels on a GPU that has them, plain torch everywhere else; both give the same numbers."""
    problem = Problem.of(queries_side, keys_side)
    device = queries_side.device
    if not queries_side.is_cuda or problem.head_dim > MAX_HEAD_DIM:
        return in_torch
    if reason_against(problem, device) is not None:
        return in_torch
    from kernels.recompute import in_triton

    return in_triton
