"""FlashAttention-2: queries outside, keys and values streamed past, one division at the end."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.problem import Problem
from kernels.triton_mode import reason_against

MAX_HEAD_DIM = 256


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    # Imported late: `@triton.jit` needs Triton, and chooses its mode for the whole process.
    from kernels.fa2.forward import launch_forward

    return launch_forward(q, k, v, scale, causal)


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    from kernels.fa2.backward import launch_backward

    return launch_backward(saved, grad_output, grad_log_sum_exp)


def supports(problem: Problem, device: torch.device) -> str | None:
    if problem.head_dim > MAX_HEAD_DIM:
        return f"fa2 holds a head of at most {MAX_HEAD_DIM} dimensions on chip, not {problem.head_dim}."
    return reason_against(problem, device)


IMPLEMENTATION = Implementation(
    name="fa2",
    summary="FlashAttention-2 in Triton; the N x N matrix is never stored.",
    forward=forward,
    supports=supports,
    backward=backward,
    repeatable=True,
)
