"""NVIDIA's cuDNN attention through torch's own operator, so that nothing else can be chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation, Saved
from kernels.peers.adapt import Given, gradients, positive_scale, readable
from kernels.peers.limits import Limits
from kernels.problem import Problem

FORWARD = torch.ops.aten._scaled_dot_product_cudnn_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default
LIMITS = Limits("sdpa-cudnn", widest=128, square_causal=True, grid=True)


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Laid out like q; inputs are copied only where they are not aligned, or expanded."""
    q, scale, _ = positive_scale(q, scale)
    found = FORWARD(spread(q), spread(k), spread(v), None, True, 0.0, causal, scale=scale)
    return found[0], found[1].squeeze(-1)  # torch gives the log-sum-exp as [b, h, q, 1]


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return gradients(saved, grad_output, grad_log_sum_exp, forward, run)


def run(given: Given, saved: Saved, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = spread(given.q), spread(given.k), spread(given.v)
    seed = q.new_empty((), dtype=torch.int64)  # never read without dropout, but it must be there
    return BACKWARD(
        ordered_like(given.grad_output, q),
        q,
        k,
        v,
        ordered_like(given.output, q),
        saved.log_sum_exp.unsqueeze(-1),
        seed,
        seed,
        None,
        None,
        None,
        q.shape[2],
        k.shape[2],
        0.0,
        saved.causal,
        scale=scale,
    )


def spread(tensor: Tensor) -> Tensor:
    """cuDNN's plans take no stride of 0, which an expanded tensor has."""
    return readable(tensor.contiguous() if 0 in tensor.stride() else tensor)


def ordered_like(tensor: Tensor, q: Tensor) -> Tensor:
    """Heads or tokens outside as in q; copied only where they are not.

    torch looks its cuDNN plans up by the strides of q, k and v alone. With an output of other strides
    than the plan was made for, the plan would read the wrong numbers and say nothing.
    """
    if q.stride(1) < q.stride(2):
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return tensor.contiguous()


def supports(problem: Problem, device: torch.device) -> str | None:
    reason = LIMITS.reason(problem, device)
    if reason is None and 1 in (problem.queries, problem.keys):
        return "sdpa-cudnn needs two queries and two keys at least; choose fa2."
    return reason


IMPLEMENTATION = Implementation(
    name="sdpa-cudnn",
    summary="NVIDIA's own attention from cuDNN, as torch calls it.",
    forward=forward,
    supports=supports,
    backward=backward,
    peer=True,
)
