"""FlashAttention-3 for Hopper: a warp that brings tiles, warpgroups that take turns, softmax under the products."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.hopper_reason import reason_against
from kernels.implementation import Implementation, Saved
from kernels.problem import Problem


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
    """Wider heads leave room for little else on chip; nobody has timed them against fa2's."""
    return problem.head_dim <= 128


IMPLEMENTATION = Implementation(
    name="fa3",
    summary="FlashAttention-3 in Gluon, for Hopper: copies, products and softmax at the same time.",
    forward=forward,
    supports=supports,
    backward=backward,
    worth=worth,
)
