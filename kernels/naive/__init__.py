"""The textbook's attention in Triton: every step a kernel of its own, every N x N matrix in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.naive.tile_sizes import stored_columns
from kernels.problem import Problem
from kernels.triton_mode import reason_against

MAX_HEAD_DIM = 256


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    output, log_sum_exp, _ = forward_keeping(q, k, v, scale, causal)
    return output, log_sum_exp


def forward_keeping(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    # Imported late: `@triton.jit` needs Triton, and chooses its mode for the whole process.
    from kernels.naive.forward import launch_forward

    return launch_forward(q, k, v, scale, causal)


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    from kernels.naive.backward import launch_backward

    return launch_backward(saved, grad_output, grad_log_sum_exp)


def empty_kept(q: Tensor, k: Tensor) -> Tensor:
    """P [batch, heads, queries, stored keys], not filled; see `stored_columns`."""
    return q.new_empty(*q.shape[:3], stored_columns(k.shape[2]))


def supports(problem: Problem, device: torch.device) -> str | None:
    if problem.head_dim > MAX_HEAD_DIM:
        return f"naive takes heads of at most {MAX_HEAD_DIM} dimensions, not {problem.head_dim}."
    return reason_against(problem, device) or reason_against_memory(problem, device, matrices=1)


def supports_backward(problem: Problem, device: torch.device) -> str | None:
    """The backward pass needs P and, beside it, dP, over which dS is written."""
    return reason_against_memory(problem, device, matrices=2)


def reason_against_memory(problem: Problem, device: torch.device, matrices: int) -> str | None:
    """None unless so many N x N matrices cannot fit, whatever else the GPU holds."""
    if device.type != "cuda":
        return None
    scores = problem.batch * problem.heads * problem.queries * stored_columns(problem.keys)
    needed = matrices * scores * getattr(torch, problem.dtype).itemsize
    there = torch.cuda.get_device_properties(device).total_memory
    if needed <= there:
        return None
    return (
        f"naive would store {needed / 1e9:,.0f} GB of N x N matrices, and this GPU has "
        f"{there / 1e9:,.0f} GB; fa2 stores none."
    )


IMPLEMENTATION = Implementation(
    name="naive",
    summary="The textbook's three steps in Triton, each from and to memory; stores the whole N x N matrix.",
    forward=forward,
    supports=supports,
    backward=backward,
    supports_backward=supports_backward,
    forward_keeping=forward_keeping,
    empty_kept=empty_kept,
)
