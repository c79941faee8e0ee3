"""The plain Triton twin of fa3, as an implementation that runs where fa3 cannot: for walks, counts and tests.

It is in no registry: nobody who asks for fa3 gets the twin's speed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.problem import Problem
from kernels.triton_mode import reason_against

MAX_HEAD_DIM = 256


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """In fa3's own pieces; with tiles of one's own (`with_tiles`) one program for each tile of queries."""
    # Imported late: `@triton.jit` needs Triton, and chooses its mode for the whole process.
    from kernels.fa3.twin import launch_forward
    from kernels.fa3.twin_launch import launch_twin
    from kernels.tile_sizes import CHOSEN

    return (launch_forward if CHOSEN.get() else launch_twin)(q, k, v, scale, causal)


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """In fa3's own tiles, in Triton's interpreter only."""
    from kernels.fa3.twin_backward import launch_twin_backward

    return launch_twin_backward(saved, grad_output, grad_log_sum_exp)


def supports(problem: Problem, device: torch.device) -> str | None:
    if problem.head_dim > MAX_HEAD_DIM:
        return f"fa3 holds a head of at most {MAX_HEAD_DIM} dimensions on chip, not {problem.head_dim}."
    return reason_against(problem, device)


STAND_IN = Implementation(
    name="fa3",
    summary="fa3's tiles in fa3's order, in plain Triton: the same result, without its speed.",
    forward=forward,
    supports=supports,
    backward=backward,
)
