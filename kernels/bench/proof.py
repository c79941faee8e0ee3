"""Right first, fast second: every contestant is held against float64 before it is timed.

Forward and backward passes are checked on the very inputs that are timed, on sampled rows, without an N x N
matrix. A part of P is checked on a smaller problem of the same kind.
The bound is the tests': twice the error of eager torch in the same dtype, and rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kernels import reference
from kernels.bench.contestants import (
    PARTS,
    Inputs,
    log_sum_exp_of,
    make_inputs,
    weights_of,
)
from kernels.problem import Problem

SAMPLED = 8  # queries, and keys
SMALL = 256  # tokens
SCORES_AT_ONCE = 2**27  # a gigabyte in float64

Three = tuple[Tensor, Tensor, Tensor]


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
        index = spread(inputs.problem.queries, inputs.q.device)
        exact = cls.rows(inputs, index, torch.float64)
        eager = cls.rows(inputs, index, inputs.q.dtype)
        return cls(index, *exact, *eager)

    @staticmethod
    def rows(inputs: Inputs, index: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Textbook attention of these queries, computed in this dtype -> output, log_sum_exp."""
        group = inputs.problem.group
        k, v = (t.to(dtype).repeat_interleave(group, dim=1) for t in (inputs.k, inputs.v))
        scores = (inputs.q[:, :, index].to(dtype) @ k.mT) * inputs.scale
        every_key = torch.arange(inputs.problem.keys, device=index.device)
        scores = scores.masked_fill(~seen(inputs.problem, index, every_key), -torch.inf)
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


@dataclass(frozen=True)
class SampledGradients:
    """The true gradients of a few queries, keys and values, and what eager makes of them."""

    query: Tensor
    key: Tensor
    truth: Three  # float64 [batch, heads, sampled, head_dim]
    eager: Three
    floor: float
    stored: tuple[
        float, float, float
    ]  # what half a unit in the last place of a stored dP makes of each

    @classmethod
    def of(cls, inputs: Inputs) -> SampledGradients:
        problem = inputs.problem
        query, key = (spread(n, inputs.q.device) for n in (problem.queries, problem.keys))
        log_sum_exp, delta = exact_sums(inputs)
        (truth, sizes), (eager, _) = (
            sampled_gradients(inputs, query, key, log_sum_exp, delta, dtype)
            for dtype in (torch.float64, inputs.q.dtype)
        )
        epsilon = torch.finfo(inputs.q.dtype).eps
        of_q, of_k = (epsilon / 2 * size.max().item() for size in sizes)
        return cls(
            query, key, truth, eager, 2 * (epsilon + score_floor(log_sum_exp)), (of_q, of_k, 0.0)
        )

    def check(self, grad_q: Tensor, grad_k: Tensor, grad_v: Tensor, stores: bool = False) -> None:
        """Raises WrongAnswer.

        `stores` where dP is stored in the inputs' dtype beside a float32 delta. A query that sees few keys
        has dP - delta near 0: what is left is the rounding of dP, which eager's rounded delta takes away by luck.
        """
        found = grad_q[:, :, self.query], grad_k[:, :, self.key], grad_v[:, :, self.key]
        parts = zip("qkv", found, self.eager, self.truth, self.stored, strict=True)
        for name, given, eager, truth, stored in parts:
            floor = self.floor * truth.abs().max().item() + (stored if stores else 0.0)
            check(f"the gradient of {name}", given, eager, truth, floor)


def sampled_gradients(
    inputs: Inputs,
    query: Tensor,
    key: Tensor,
    log_sum_exp: Tensor,
    delta: Tensor,
    dtype: torch.dtype,
) -> tuple[Three, tuple[Tensor, Tensor]]:
    """Dao et al. 2022, appendix B.2, for these rows of Q and of K and V, computed in this dtype.

    A query needs its row of P, a key its column; the log-sum-exp and delta tie them to the rest. With them
    come the sizes of what dP adds to dQ and dK, to be multiplied by its relative error.
    """
    problem, scale = inputs.problem, inputs.scale
    q, grad_output = inputs.q.to(dtype), inputs.grad_output.to(dtype)
    k, v = (t.to(dtype).repeat_interleave(problem.group, dim=1) for t in (inputs.k, inputs.v))
    every_query, every_key = (torch.arange(t.shape[2], device=t.device) for t in (q, k))

    def block(rows: Tensor, columns: Tensor) -> Three:
        """P, dS and P * |dP| where these rows and columns cross."""
        scores = (q[:, :, rows] @ k[:, :, columns].mT) * scale
        p = torch.exp(scores - log_sum_exp[:, :, rows, None])
        p = torch.where(seen(problem, rows, columns), p, 0.0).to(dtype)
        grad_p = grad_output[:, :, rows] @ v[:, :, columns].mT
        return p, p * (grad_p - delta[:, :, rows, None].to(dtype)), p * grad_p.abs()

    _, row_grad_scores, row_size = block(query, every_key)
    p, grad_scores, size = block(every_query, key)
    sizes = abs(scale) * (row_size @ k.abs()), abs(scale) * (size.mT @ q.abs())
    grad_k, grad_v = scale * (grad_scores.mT @ q), p.mT @ grad_output
    grad_k, grad_v = (g.unflatten(1, (-1, problem.group)).sum(2) for g in (grad_k, grad_v))
    return (scale * (row_grad_scores @ k), grad_k, grad_v), sizes


def exact_sums(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """log_sum_exp and delta = rowsum(dO * O) of every query in float64, a share of the queries at a time."""
    problem = inputs.problem
    k, v = (t.double().repeat_interleave(problem.group, dim=1) for t in (inputs.k, inputs.v))
    every_key = torch.arange(problem.keys, device=k.device)
    share = max(1, SCORES_AT_ONCE // (problem.batch * problem.heads * problem.keys))
    sums, deltas = [], []
    for rows in torch.arange(problem.queries, device=k.device).split(share):
        scores = (inputs.q[:, :, rows].double() @ k.mT) * inputs.scale
        scores = scores.masked_fill(~seen(problem, rows, every_key), -torch.inf)
        output = torch.softmax(scores, -1).nan_to_num(0.0) @ v
        sums.append(scores.logsumexp(-1))
        deltas.append((output * inputs.grad_output[:, :, rows].double()).sum(-1))
    return torch.cat(sums, -1), torch.cat(deltas, -1)


def seen(problem: Problem, rows: Tensor, columns: Tensor) -> Tensor:
    """True where the query may see the key, [rows, columns]."""
    last_seen = rows + (problem.keys - problem.queries if problem.causal else problem.keys)
    return columns <= last_seen.unsqueeze(-1)


def spread(tokens: int, device: torch.device) -> Tensor:
    """The first and the last token and some between."""
    return torch.linspace(0, tokens - 1, min(SAMPLED, tokens), device=device).long()


class Truth:
    """What is right for these inputs, worked out when it is first asked for."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @cached_property
    def rows(self) -> SampledRows:
        return SampledRows.of(self.inputs)

    @cached_property
    def gradients(self) -> SampledGradients:
        return SampledGradients.of(self.inputs)


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
