"""What is special about FlashAttention-1: its output grows in memory, one tile of keys after the other."""

from __future__ import annotations

import importlib

import pytest
import torch

from kernels import Problem, attention, reference
from kernels.fa1.tile_sizes import BACKWARD, FORWARD
from kernels.implementation import Saved
from kernels.registry import load
from kernels.tile_sizes import Tiles, padded
from tests.kernels.conftest import cases, make_tensors
from tests.numerics import assert_within_eager_error, largest, score_floor

CASES = pytest.mark.parametrize(("name", "device", "dtype"), cases(["fa1"]))
ON_GPU = [case for case in cases(["fa1"]) if case.values[1] == "cuda"]
"""The interpreter runs a program's threads in step, so no order of theirs could go wrong there."""

MANY_PASSES = Problem(1, 1, 40, 330, 16)
SMALL = Tiles(32, 16, 4, 1)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 32 queries and 16 keys whatever the GPU, so that a small problem takes many passes."""
    pytest.importorskip("triton")
    for direction in ("forward", "backward"):
        module = importlib.import_module(f"kernels.fa1.{direction}")
        monkeypatch.setattr(module, "pick", lambda *row: SMALL)


def passes(problem: Problem) -> int:
    return -(-problem.keys // SMALL.block_k)


def outer_gradients(q):
    """Gradients of both results, that of the log-sum-exp as large as that of the output."""
    generator = torch.Generator().manual_seed(q.numel())
    grad_output = torch.randn(q.shape, generator=generator).to(q.device, q.dtype)
    return grad_output, torch.randn(q.shape[:3], generator=generator).to(q.device)


def backward_of(name, tensors, scale, causal, grad_output, grad_lse):
    """Gradients by one implementation, from its own forward pass, without the operator between."""
    chosen, kept = load(name), tensors[0].new_empty(0)
    if chosen.forward_keeping is not None:
        output, lse, kept = chosen.forward_keeping(*tensors, scale, causal)
    else:
        output, lse = chosen.forward(*tensors, scale, causal)
    assert chosen.backward is not None
    return chosen.backward(Saved(*tensors, output, lse, kept, scale, causal), grad_output, grad_lse)


@pytest.mark.usefixtures("poisoned_empty", "small_tiles")
@CASES
def test_the_output_is_whole_after_every_pass(name, device, dtype):
    """With V = 1 each row is 1: divided once too often it is 0.05 here, but right with one tile of keys."""
    assert passes(MANY_PASSES) > 20
    q, k, v = make_tensors(MANY_PASSES, device, dtype)
    output, _ = attention(q, k, torch.ones_like(v), implementation=name)
    # Weights are rounded to the inputs' precision before they meet V, their sum is not; and each pass
    # rounds the output once, in float32.
    bound = 2 * torch.finfo(dtype).eps + passes(MANY_PASSES) * torch.finfo(torch.float32).eps
    assert largest(output, torch.ones_like(output)) <= bound


@pytest.mark.usefixtures("poisoned_empty", "small_tiles")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@CASES
def test_many_passes_round_no_more_than_one(name, causal, device, dtype):
    q, k, v = make_tensors(MANY_PASSES, device, dtype)
    factor = MANY_PASSES.head_dim**-0.5
    output, lse = attention(q, k, v, causal=causal, implementation=name)
    eager_output, eager_lse = load("eager").forward(q, k, v, factor, causal)
    true_output, true_lse = reference.attention(q, k, v, factor, causal)
    floor = score_floor(true_lse, true_output)
    assert_within_eager_error(output, eager_output, true_output, "output", floor)
    assert_within_eager_error(lse, eager_lse, true_lse, "log-sum-exp")


@pytest.mark.usefixtures("poisoned_empty", "small_tiles")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@CASES
def test_the_order_of_the_loops_changes_nothing(name, causal, device, dtype):
    """Keys outside or queries outside: the same sums, rounded in another order."""
    q, k, v = make_tensors(MANY_PASSES, device, dtype)
    output, lse = attention(q, k, v, causal=causal, implementation=name)
    other_output, other_lse = attention(q, k, v, causal=causal, implementation="fa2")
    assert largest(output, other_output) <= 4 * torch.finfo(dtype).eps * v.abs().max().item()
    assert largest(lse, other_lse) <= 1e-5


@pytest.mark.usefixtures("poisoned_empty", "small_tiles")
@pytest.mark.parametrize(
    "problem",
    [
        Problem(1, 1, 40, 330, 32),
        Problem(1, 4, 40, 85, 40, kv_heads=2),
        Problem(1, 3, 100, 60, 16, causal=True, kv_heads=1),
    ],
    ids=str,
)
@CASES
def test_gradients(name, problem, device, dtype):
    """Many passes over dQ; shared heads; queries that see nothing; a gradient of the log-sum-exp."""
    tensors = make_tensors(problem, device, dtype)
    scale, outer = problem.head_dim**-0.5, outer_gradients(tensors[0])
    found = backward_of(name, tensors, scale, problem.causal, *outer)
    eager = backward_of("eager", tensors, scale, problem.causal, *outer)
    truth = reference.gradients(*tensors, scale, problem.causal, *outer)
    for what, g, e, t in zip(("dQ", "dK", "dV"), found, eager, truth, strict=True):
        assert g.dtype == dtype
        assert_within_eager_error(g, e, t, what, score_floor(truth[0], t))
    if problem.causal:
        blind = problem.queries - problem.keys
        assert not found[0][:, :, :blind].any()


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("head_dim", [9, 24, 40, 59, 100, 120, 136, 200, 250])
@pytest.mark.parametrize(("name", "device", "dtype"), ON_GPU)
def test_gradients_at_widths_that_do_not_fill_a_tile(name, head_dim, device, dtype):
    """On these tables' own tiles: with larger ones the compiler wrote code that read out of bounds."""
    for problem in (
        Problem(1, 2, 70, 70, head_dim),
        Problem(2, 4, 150, 190, head_dim, causal=True, kv_heads=2),
    ):
        tensors = make_tensors(problem, device, dtype)
        scale, outer = head_dim**-0.5, outer_gradients(tensors[0])
        found = backward_of(name, tensors, scale, problem.causal, *outer)
        eager = backward_of("eager", tensors, scale, problem.causal, *outer)
        truth = reference.gradients(*tensors, scale, problem.causal, *outer)
        for what, g, e, t in zip(("dQ", "dK", "dV"), found, eager, truth, strict=True):
            assert_within_eager_error(g, e, t, f"{what} of {problem}", score_floor(truth[0], t))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("name", "device", "dtype"), ON_GPU)
def test_every_run_gives_the_same_bits(name, device, dtype):
    """What passes through memory from one thread to another is where a missing barrier would show."""
    q, k, v = make_tensors(Problem(2, 4, 200, 120, 64, kv_heads=2), device, dtype)
    scale, outer = 64**-0.5, outer_gradients(q)
    first = backward_of(name, (q, k, v), scale, True, *outer)
    for _ in range(250):
        again = backward_of(name, (q, k, v), scale, True, *outer)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("table", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_a_safe_row_for_every_width(table):
    rows = {(size, padded(dim)) for size in (2, 4) for dim in range(1, 257)}
    assert {(size, width) for gpu, size, width in table if gpu == "any"} == rows


def test_heads_too_wide_are_refused_in_a_sentence():
    reason = load("fa1").supports(Problem(1, 1, 8, 8, 300), torch.device("cpu"))
    assert reason == "fa1 holds a head of at most 256 dimensions on chip, not 300."
