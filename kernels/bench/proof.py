"""Right first, fast second: every contestant is held against float64 before it is timed.

A forward pass is checked on the very inputs that are timed, on sampled rows, in O(rows x keys) memory. A
backward pass and a part of P need the whole matrix: they are checked on a smaller problem of the same kind.
The bound is the tests': twice the error of eager torch in the same dtype, and rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels import reference
from kernels.bench.contestants import (
    PARTS,
    Inputs,
    backward_work,
    log_sum_exp_of,
    make_inputs,
    weights_of,
)
from kernels.eager import IMPLEMENTATION as EAGER
from kernels.implementation import Implementation
from kernels.problem import Problem

SAMPLED_ROWS = 8
SMALL = 256


class WrongAnswer(Exception):
    """What is wrong, in one sentence; the contestant is not timed."""


def check(what: str, result: Tensor, eager: Tensor, truth: Tensor, floor: float) -> None:
    """|result - float64| <= 2 * |eager - float64| + rounding + floor, in the largest error; NaN never passes.

    Rounding is two units in the last place of the largest true value.

    Raises:
        WrongAnswer: it is further off.
    """
    if result.shape != truth.shape:
        raise WrongAnswer(f"wrong: {what} is {list(result.shape)}, not {list(truth.shape)}")
    seen = torch.isfinite(truth)
    if not torch.equal(result[~seen].double(), truth[~seen]):
        raise WrongAnswer(f"wrong: {what} is another infinity than in float64")
    if not seen.any():
        return
    result, eager, truth = (t[seen].double() for t in (result.double(), eager, truth))
    rounding = 2 * torch.finfo(torch.float32).eps * truth.abs().max() + floor
    bound = 2 * (eager - truth).abs().max() + rounding
    error = (result - truth).abs().max()
    # Not "error > bound": a NaN must fail.
    if not error <= bound:
        raise WrongAnswer(f"wrong: {what} is off by {error:.2g} where {bound:.2g} is allowed")


@dataclass(frozen=True)
class SampledRows:
    """The true output and log-sum-exp of a few queries, and eager's."""

    index: Tensor
    output: Tensor  # float64 [batch, heads, rows, head_dim]
    log_sum_exp: Tensor  # float64 [batch, heads, rows]
    eager_output: Tensor
    eager_log_sum_exp: Tensor

    @classmethod
    def of(cls, inputs: Inputs) -> SampledRows:
        """The first and the last query and some between."""
        queries, device = inputs.problem.queries, inputs.q.device
        index = torch.linspace(0, queries - 1, min(SAMPLED_ROWS, queries), device=device).long()
        exact = cls.rows(inputs, index, torch.float64)
        eager = cls.rows(inputs, index, inputs.q.dtype)
        return cls(index, *exact, *eager)

    @staticmethod
    def rows(inputs: Inputs, index: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Textbook attention of these queries, computed in this dtype -> output, log_sum_exp."""
        group = inputs.problem.group
        k, v = (t.to(dtype).repeat_interleave(group, dim=1) for t in (inputs.k, inputs.v))
        scores = (inputs.q[:, :, index].to(dtype) @ k.mT) * inputs.scale
        if inputs.problem.causal:
            last_seen = index + inputs.problem.keys - inputs.problem.queries
            key = torch.arange(inputs.problem.keys, device=index.device)
            scores = scores.masked_fill(key > last_seen.unsqueeze(-1), -torch.inf)
        wide = scores if dtype == torch.float64 else scores.float()
        return torch.softmax(scores, -1).nan_to_num(0.0) @ v, wide.logsumexp(-1)

    def check(self, output: Tensor, log_sum_exp: Tensor) -> None:
        """Raises WrongAnswer."""
        rounding = torch.finfo(output.dtype).eps * self.output.abs().max().item()
        floor = score_floor(self.log_sum_exp)
        output, log_sum_exp = output[:, :, self.index], log_sum_exp[:, :, self.index]
        check("the output", output, self.eager_output, self.output, 2 * rounding + floor)
        check("lse", log_sum_exp, self.eager_log_sum_exp, self.log_sum_exp, floor)


def score_floor(scores: Tensor) -> float:
    """Two units in the last place of the largest float32 score: what exp makes of them."""
    finite = scores[torch.isfinite(scores)]
    return 2 * torch.finfo(torch.float32).eps * finite.abs().max().item() if len(finite) else 0.0


def small_like(problem: Problem) -> Problem:
    """The same kind of problem, with as many tokens behind the last whole tile, that fits in a float64 matrix."""
    queries, keys = (
        n if n <= SMALL else SMALL + n % SMALL for n in (problem.queries, problem.keys)
    )
    return replace(problem, batch=1, queries=queries, keys=keys)


def check_backward(chosen: Implementation, problem: Problem, device: torch.device) -> None:
    """All three gradients of the small problem, every number.

    Raises:
        WrongAnswer: one is further off than the bound.
    """
    inputs = make_inputs(small_like(problem), device)
    truth = reference.gradients(*inputs.forward, inputs.grad_output)
    scores = reference.scores(inputs.q, inputs.k, inputs.scale, problem.causal)
    found, eager = backward_work(chosen, inputs)(), backward_work(EAGER, inputs)()
    for name, *three in zip("qkv", found, eager, truth, strict=True):  # pyright: ignore
        largest = three[2].abs().max().item()
        rounding = torch.finfo(inputs.q.dtype).eps + score_floor(scores)
        check(f"the gradient of {name}", *three, floor=2 * rounding * largest)


def check_part(name: str, problem: Problem, device: torch.device) -> None:
    """A part of P of the small problem.

    Raises:
        WrongAnswer: it is further off than the bound.
    """
    inputs = make_inputs(small_like(problem), device)
    q, k, _, scale, causal = inputs.forward
    scores = reference.scores(q, k, scale, causal)
    lse = torch.logsumexp(scores, -1, keepdim=True)
    exact = torch.exp(scores - lse)
    eager = torch.exp((q @ k.repeat_interleave(problem.group, 1).mT).float() * scale - lse.float())
    eager = torch.where(exact > 0, eager, 0.0)
    truth, near = (cut(name, inputs, p) for p in (exact, eager.double()))
    floor = score_floor(scores) * truth.abs().max().item()
    if name == "product":
        # Each of the sum's terms is rounded.
        sizes = weights_of(inputs).double().abs().unsqueeze(-2) @ exact
        floor = (score_floor(scores) + 4 * torch.finfo(torch.float32).eps) * sizes.max().item()
    check(name, PARTS[name](inputs, log_sum_exp_of(inputs))(), near, truth, 2 * floor)  # pyright: ignore


def cut(name: str, inputs: Inputs, p: Tensor) -> Tensor:
    """The same part out of the whole P."""
    if name == "one-row":
        return p[:, :, p.shape[2] // 2, None]
    if name == "one-column":
        return p[..., p.shape[3] // 2, None]
    return (weights_of(inputs).double().unsqueeze(-2) @ p).squeeze(-2)
