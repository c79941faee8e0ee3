"""The shape that every way of computing attention has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.problem import Problem

Forward = Callable[[Tensor, Tensor, Tensor, float, bool], tuple[Tensor, Tensor]]
"""(q, k, v, scale, causal) -> (output like q, log_sum_exp float32 [batch, heads, queries])."""

Supports = Callable[[Problem, torch.device], str | None]
"""(problem, device) -> None, or one sentence saying why not and what would help."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute attention; every field is a plain value or a plain function."""

    name: str
    summary: str  # one sentence for the screen
    forward: Forward
    supports: Supports
    differentiable: bool = False  # torch can differentiate through `forward`
