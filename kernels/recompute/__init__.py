"""Any part of P from Q, K and the log-sum-exp, in memory no larger than the answer."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from kernels.problem import Problem
from kernels.recompute import in_torch
from kernels.triton_mode import reason_against


def rows(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """P[:, :, index, :], float32 [batch, heads, len(index), keys]."""
    return backend(q, k).rows(q, k, lse, index, scale, causal)


def columns(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """P[:, :, :, index], float32 [batch, heads, queries, len(index)]."""
    return backend(q, k).columns(q, k, lse, index, scale, causal)


def backend(q: Tensor, k: Tensor) -> ModuleType:
    """The Triton kernel on a GPU that has it, plain torch everywhere else; both give the same rows."""
    if not q.is_cuda or reason_against(Problem.of(q, k), q.device) is not None:
        return in_torch
    from kernels.recompute import in_triton

    return in_triton
