"""Rows and columns of P rebuilt from the log-sum-exp equal those of the float64 matrix."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from kernels import Problem, attention, attention_columns, attention_rows, reference
from tests.kernels.conftest import cases, make_tensors
from tests.numerics import assert_within_eager_error, score_floor

SHAPES = [
    Problem(1, 2, 1, 1, 64),
    Problem(2, 2, 63, 63, 64),
    Problem(1, 2, 129, 129, 64),
    Problem(1, 3, 257, 257, 64),
    Problem(1, 2, 50, 90, 40),
    Problem(1, 1, 20, 150, 256),
    Problem(1, 4, 65, 130, 72, causal=True, kv_heads=2),
    Problem(1, 2, 70, 30, 64, causal=True),
]
WAYS = ["kernels.recompute.in_torch", "kernels.recompute.in_triton"]
ON_CPU = [pytest.param(WAYS[0]), pytest.param(WAYS[1], marks=pytest.mark.interpreter)]


def picks(size: int) -> list[list[int]]:
    """None, one, a few out of order and twice, and more than one program gathers."""
    return [[], [size - 1], [size // 2, 0, size // 2], [i % size for i in range(20)]]


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_rows_and_columns(way, problem, device, dtype):
    part = import_module(way)
    q, k, _ = make_tensors(problem, device, dtype)
    scale = problem.head_dim**-0.5
    truth = reference.probabilities(q, k, scale, problem.causal)
    scores = reference.scores(q, k, scale, problem.causal)
    lse, floor = torch.logsumexp(scores, -1).float(), score_floor(scores, truth)
    group = problem.group
    eager = ((q @ k.repeat_interleave(group, 1).mT) * scale).float() - lse.unsqueeze(-1)
    eager = torch.where(truth > 0, eager.exp(), 0.0)
    for picked in picks(problem.queries):
        index = torch.tensor(picked, dtype=torch.int64, device=device)
        rows = part.rows(q, k, lse, index, scale, problem.causal)
        assert rows.dtype == torch.float32
        assert_within_eager_error(rows, eager[:, :, index], truth[:, :, index], "rows", floor)
    for picked in picks(problem.keys):
        index = torch.tensor(picked, dtype=torch.int64, device=device)
        columns = part.columns(q, k, lse, index, scale, problem.causal)
        assert_within_eager_error(columns, eager[..., index], truth[..., index], "columns", floor)


@pytest.mark.parametrize(("_name", "device", "dtype"), cases(["auto"]))
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 127, 128, 129, 257, 1370])
def test_laws_of_the_public_door(tokens, _name, device, dtype):
    """Rows sum to 1, columns sum to N in total, they agree where they cross, and P V is the output."""
    q, k, v = make_tensors(Problem(1, 2, tokens, tokens, 64), device, dtype)
    output, lse = attention(q, k, v)
    picked = sorted({0, tokens // 2, tokens - 1})
    rows = attention_rows(q, k, lse, picked)
    columns = attention_columns(q, k, lse, range(tokens))
    rounding = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    assert (rows.double().sum(-1) - 1).abs().max() <= min(rounding, 1e-3)
    assert columns.double().sum(dim=(-1, -2)).sub(tokens).abs().max() <= 1e-3 * tokens
    assert (rows - columns[:, :, picked]).abs().max() <= 1e-5
    assert (rows.double() @ v.double() - output[:, :, picked].double()).abs().max() <= rounding


@pytest.mark.parametrize("way", ON_CPU)
@pytest.mark.parametrize("tokens", [63, 65, 129])
def test_garbage_behind_the_end_changes_nothing(way, tokens):
    part = import_module(way)
    q, k, v = make_tensors(Problem(1, 2, tokens, tokens, 64), "cpu", torch.float32)
    _, lse = attention(q, k, v)
    buffers = [torch.full((1, 2, tokens + 99, 64), torch.nan) for _ in "qk"]
    views = [b[:, :, :tokens] for b in buffers]
    views[0].copy_(q)
    views[1].copy_(k)
    index = torch.tensor([0, tokens - 1])
    for side in ("rows", "columns"):
        clean = getattr(part, side)(q, k, lse, index, 0.125, False)
        dirty = getattr(part, side)(*views, lse, index, 0.125, False)
        assert torch.equal(clean, dirty)
