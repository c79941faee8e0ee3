"""FlashAttention-3 for Hopper: a warp that brings tiles, warpgroups that take turns, softmax under the products."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.hopper_reason import reason_against
from kernels.implementation import Implementation, Saved
from kernels.problem import Problem

WIDEST_TIMED = 128
ROWS_OF_A_BLOCK, ROWS_OF_A_WIDE_BLOCK = 192, 128  # as in `forward.FORMS`
ROWS_OF_A_WARPGROUP = 64
FEWEST_KEYS_TIMED, MOST_KEYS_TIMED = 577, 1370  # of one picture
MULTIPROCESSORS = 132  # of an H100 or H200


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Few keys stay on chip in one piece; more are streamed past."""
    # Imported late: Gluon comes with Triton, which chooses its mode for the whole process.
    from kernels.fa3.short import launch_short, takes

    if takes(Problem.of(q, k, causal)):
        return launch_short(q, k, v, scale, causal)
    from kernels.fa3.forward import launch_forward

    return launch_forward(q, k, v, scale, causal)


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    from kernels.fa3.backward import launch_backward

    return launch_backward(saved, grad_output, grad_log_sum_exp)


def supports(problem: Problem, device: torch.device) -> str | None:
    return reason_against(problem, device, "fa3")


def worth(problem: Problem) -> bool:
    """Where fa3 was the faster one when it was timed beside fa2 on an H200 (`results/hopper.csv`).

    With few keys it was everywhere. With more it needs a block of queries for each multiprocessor, or one
    picture whose blocks of 64 queries find one each. Heads wider than 128 were not timed for these rows.
    """
    from kernels.fa3.short import takes

    if problem.head_dim > WIDEST_TIMED or problem.empty:
        return False
    rows = ROWS_OF_A_BLOCK if problem.head_dim <= 64 else ROWS_OF_A_WIDE_BLOCK
    blocks = problem.batch * problem.heads * -(-problem.queries // rows)
    return takes(problem) or blocks >= MULTIPROCESSORS or is_one_picture(problem)


def is_one_picture(problem: Problem) -> bool:
    """Whether it takes the form for few queries, at a size at which that was timed."""
    blocks = problem.batch * problem.heads * -(-problem.queries // ROWS_OF_A_WARPGROUP)
    fits = problem.head_dim <= 64 and not problem.causal and blocks <= MULTIPROCESSORS
    return fits and FEWEST_KEYS_TIMED <= problem.keys <= MOST_KEYS_TIMED


IMPLEMENTATION = Implementation(
    name="fa3",
    summary="FlashAttention-3 in Gluon, for Hopper: copies, products and softmax at the same time.",
    forward=forward,
    supports=supports,
    backward=backward,
    repeatable=True,
    worth=worth,
)
