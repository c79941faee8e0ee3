"""The shape that every way of computing attention has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.problem import Problem


@dataclass(frozen=True)
class Saved:
    """What a forward pass leaves for its backward pass."""

    q: Tensor  # [batch, heads, queries, head_dim]
    k: Tensor  # [batch, kv_heads, keys, head_dim]
    v: Tensor  # like k
    output: Tensor  # like q
    log_sum_exp: Tensor  # float32 [batch, heads, queries]
    kept: Tensor  # P, for those that store it; without elements for the others
    scale: float
    causal: bool


Forward = Callable[[Tensor, Tensor, Tensor, float, bool], tuple[Tensor, Tensor]]
"""(q, k, v, scale, causal) -> (output like q, log_sum_exp float32 [batch, heads, queries])."""

ForwardKeeping = Callable[[Tensor, Tensor, Tensor, float, bool], tuple[Tensor, Tensor, Tensor]]
"""The same, and `kept`: what the backward pass needs besides (P, where it is stored)."""

Backward = Callable[[Saved, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""(saved, grad_output like output, grad_log_sum_exp or None) -> gradients like q, k and v."""

Supports = Callable[[Problem, torch.device], str | None]
"""(problem, device) -> None, or one sentence saying why not and what would help."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute attention; every field is a plain value or a plain function."""

    name: str
    summary: str  # one sentence for the screen
    forward: Forward
    supports: Supports
    backward: Backward | None = None
    supports_backward: Supports | None = None  # where the backward pass takes less than the forward
    forward_keeping: ForwardKeeping | None = None
    empty_kept: Callable[[Tensor, Tensor], Tensor] | None = None  # (q, k) -> `kept`, not filled
    differentiable: bool = False  # torch itself differentiates through `forward`
    repeatable: bool = False  # notes its launches, so that `kernels.repeat` may make them again
    peer: bool = False  # other people's kernel, here for comparison
    worth: Callable[[Problem], bool] | None = (
        None  # where "auto" is to take it; None for everywhere
    )

    def reason_against_backward(self, problem: Problem, device: torch.device) -> str | None:
        """None, or one sentence saying why gradients cannot be had here."""
        if self.differentiable:
            return None
        if self.backward is None:
            return f"{self.name} has no backward; use torch.no_grad(), or implementation='eager'."
        return self.supports_backward(problem, device) if self.supports_backward else None
