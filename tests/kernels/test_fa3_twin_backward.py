"""The plain Triton twin of fa3's backward pass: right on every shape, by fa3's own order of tiles and edges."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kernels import Problem, reference
from kernels.fa3.stand_in import STAND_IN
from kernels.implementation import Saved
from kernels.registry import load
from tests.kernels.conftest import make_tensors
from tests.kernels.test_backward import gradients, outer_gradients, uncancelled
from tests.numerics import assert_within_eager_error

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("poisoned_empty")]
EPS = torch.finfo(torch.float32).eps

PROBLEMS = [
    Problem(1, 1, 1, 1, 64),
    Problem(1, 2, 129, 257, 64),
    Problem(2, 4, 100, 140, 96, kv_heads=2),
    Problem(1, 2, 70, 300, 128),
    Problem(1, 2, 300, 70, 40),
    Problem(1, 3, 65, 129, 8, kv_heads=1),
    Problem(1, 1, 2100, 400, 72),  # three walks, and one cut into two
    Problem(1, 2, 1100, 520, 128, kv_heads=1),  # two cut
]
SLOTS = 3
"""Multiprocessors of the GPU that is played: walks of more than one wave."""


def saved_of(problem: Problem, dtype: torch.dtype, scale: float) -> Saved:
    tensors = make_tensors(problem, "cpu", dtype)
    output, log_sum_exp = load("fa2").forward(*tensors, scale, problem.causal)
    return Saved(*tensors, output, log_sum_exp, output.new_empty(0), scale, problem.causal)


def launched(saved: Saved, grad_output: Tensor, grad_lse: Tensor | None) -> tuple[Tensor, ...]:
    from kernels.fa3.twin_backward import launch_one_pass

    return launch_one_pass(saved, grad_output, grad_lse, SLOTS)


def check(problem: Problem, dtype: torch.dtype, scale: float, with_lse: bool) -> None:
    """The house bound of backward passes: twice eager's error, and what rounding in float32 does."""
    saved = saved_of(problem, dtype, scale)
    tensors = saved.q, saved.k, saved.v
    outer = outer_gradients(saved.q, with_lse)
    found = launched(saved, *outer)
    eager = gradients("eager", tensors, scale, problem.causal, *outer)
    truth = reference.gradients(*tensors, scale, problem.causal, *outer)
    scores = reference.scores(saved.q, saved.k, scale, problem.causal)
    share = EPS * (2 + 2 * scores[torch.isfinite(scores)].abs().max().item())
    magnitude = uncancelled(*tensors, scale, problem.causal, *outer)
    for what, g, e, t, m in zip(("dQ", "dK", "dV"), found, eager, truth, magnitude, strict=True):
        assert (g.shape, g.dtype) == (t.shape, dtype), what
        assert_within_eager_error(g, e, t, what, floor=share * m.max().item())


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_gradients(problem, causal):
    """Under the causal mask of some, the first queries see nothing: nobody adds to their tile of dQ."""
    with_lse = problem.heads % 2 == 0
    check(
        dataclasses.replace(problem, causal=causal), torch.float32, problem.head_dim**-0.5, with_lse
    )


@pytest.mark.parametrize("scale", [0.0, -0.4])
def test_any_scale_in_half_precision(scale):
    check(Problem(1, 2, 129, 257, 64), torch.float16, scale, True)


def test_a_tile_of_dq_that_nobody_has_added_to_is_zero():
    """Causal, 400 queries and 130 keys: no query of the first two tiles of 128 sees a key."""
    saved = saved_of(Problem(1, 1, 400, 130, 64, causal=True), torch.float32, 0.125)
    grad_q, _, _ = launched(saved, torch.ones_like(saved.output), None)
    assert not grad_q[:, :, :270].any()
    assert grad_q[:, :, 271:].any(3).all()


def test_nothing_leaks_from_behind_the_end():
    problem = Problem(1, 2, 65, 129, 40)
    saved = saved_of(problem, torch.float32, 0.2)
    outer = torch.ones_like(saved.output)
    expected = launched(saved, outer, None)
    names = ("q", "k", "v", "output")
    views = {}
    for name in names:
        tensor = getattr(saved, name)
        whole = torch.full((1, 3, 300, 48), torch.nan)
        views[name] = whole[:, :2, : tensor.shape[2], :40]
        views[name].copy_(tensor)
    found = launched(dataclasses.replace(saved, **views), outer, None)
    assert all(one.equal(other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("problem", "one_pass"),
    [
        (Problem(1, 1, 16, 300, 64), True),
        (Problem(1, 1, 16, 256, 64), False),
        (Problem(1, 1, 16, 300, 32), False),
        (Problem(1, 1, 16, 300, 136), False),
    ],
    ids=str,
)
def test_it_is_taken_where_fa3_takes_its_own(monkeypatch, problem, one_pass):
    """The others go to fa2's backward pass."""
    from kernels.fa3 import twin_backward

    taken = []
    monkeypatch.setattr(twin_backward, "launch_one_pass", lambda *_: taken.append("one pass"))
    monkeypatch.setattr(twin_backward, "launch_fa2", lambda *_: taken.append("fa2"))
    saved = saved_of(problem, torch.float32, 0.1)
    assert STAND_IN.backward is not None
    STAND_IN.backward(saved, torch.ones_like(saved.output), None)
    assert taken == ["one pass" if one_pass else "fa2"]


def test_where_programs_run_at_once_it_refuses(monkeypatch):
    from kernels.fa3 import twin_backward

    monkeypatch.setattr(twin_backward, "interprets", lambda: False)
    saved = saved_of(Problem(1, 1, 16, 300, 64), torch.float32, 0.1)
    with pytest.raises(RuntimeError, match="in Triton's interpreter only"):
        twin_backward.launch_twin_backward(saved, torch.ones_like(saved.output), None)
