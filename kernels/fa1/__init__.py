"""FlashAttention-1: keys and values outside, queries inside; the unfinished output lives in HBM."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.problem import Problem
from kernels.triton_mode import reason_against

MAX_HEAD_DIM = 256


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    # Imported late: `@triton.jit` needs Triton, and chooses its mode for the whole process.
    from kernels.fa1.forward import launch_forward

    return launch_forward(q, k, v, scale, causal)


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    from kernels.fa1.backward import launch_backward

    return launch_backward(saved, grad_output, grad_log_sum_exp)


def supports(problem: Problem, device: torch.device) -> str | None:
    if problem.head_dim > MAX_HEAD_DIM:
        return f"fa1 holds a head of at most {MAX_HEAD_DIM} dimensions on chip, not {problem.head_dim}."
    return reason_against(problem, device)


IMPLEMENTATION = Implementation(
    name="fa1",
    summary="FlashAttention-1 in Triton; one program a head, and the output so far goes through HBM.",
    forward=forward,
    supports=supports,
    backward=backward,
)
