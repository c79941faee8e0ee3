"""What is special to the naive kernels: P is kept, and the gradients are made from it."""

from __future__ import annotations

import pytest
import torch

from kernels import Problem, reference
from kernels.implementation import Saved
from kernels.naive import reason_against_memory, supports_backward, tile_sizes
from kernels.naive.tile_sizes import LONGEST_BLOCK, softmax_tiles, stored_columns
from kernels.registry import load
from tests.kernels.conftest import cases, make_tensors
from tests.numerics import assert_within_eager_error, score_floor

SHAPES = [
    Problem(1, 1, 1, 1, 64),
    Problem(1, 1, 33, 33, 1),
    Problem(2, 2, 65, 65, 64),
    Problem(1, 2, 50, 150, 40),
    Problem(1, 1, 33, 48, 256),
    Problem(1, 2, 70, 30, 32, causal=True),  # 40 rows see nothing
    Problem(1, 6, 129, 97, 32, causal=True, kv_heads=2),
    Problem(2, 3, 20, 70, 72, causal=True, kv_heads=1),
]
NAIVE = cases(["naive"])


def forwards(problem, device, dtype, scale):
    """What the naive and the eager forward pass leave for their backward passes."""
    q, k, v = make_tensors(problem, device, dtype)
    for name in ("naive", "eager"):
        forward = load(name).forward_keeping
        assert forward is not None
        yield Saved(q, k, v, *forward(q, k, v, scale, problem.causal), scale, problem.causal)


def gradients(saved, grad_output, grad_log_sum_exp):
    """(gradients of the naive kernels, of eager, in float64) for what both forward passes saved."""
    naive, eager = saved
    for name, one in (("naive", naive), ("eager", eager)):
        backward = load(name).backward
        assert backward is not None
        yield backward(one, grad_output, grad_log_sum_exp)
    inputs = naive.q, naive.k, naive.v, naive.scale, naive.causal
    yield reference.gradients(*inputs, grad_output, grad_log_sum_exp)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize(("_name", "device", "dtype"), NAIVE)
def test_the_kept_matrix_is_p(_name, problem, device, dtype):
    scale = problem.head_dim**-0.5
    naive, eager = forwards(problem, device, dtype, scale)
    truth = reference.probabilities(naive.q, naive.k, scale, problem.causal)
    scores = reference.scores(naive.q, naive.k, scale, problem.causal)
    kept, behind = naive.kept[..., : problem.keys], naive.kept[..., problem.keys :]
    empty_kept = load("naive").empty_kept
    assert empty_kept is not None
    assert naive.kept.stride() == empty_kept(naive.q, naive.k).stride()
    assert_within_eager_error(kept, eager.kept, truth, "P", score_floor(scores, truth))
    assert not behind.any(), "behind the last key stand zeros"
    assert not kept[truth == 0].any(), "what may not be seen has no weight at all"


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize(("_name", "device", "dtype"), NAIVE)
def test_gradients(_name, problem, device, dtype):
    """Of the output and of the log-sum-exp, with a grad_output and a grad_log_sum_exp of odd strides."""
    scale = -0.7 * problem.head_dim**-0.5
    saved = tuple(forwards(problem, device, dtype, scale))
    shape, truth_scores = saved[0].q.shape, reference.scores(saved[0].q, saved[0].k, scale)
    grad_output = torch.randn(*shape[:2], shape[3], 2 * shape[2]).to(device, dtype).mT[:, :, ::2]
    grad_lse = torch.randn(shape[2], shape[1], shape[0]).to(device).permute(2, 1, 0)
    found, eager, truth = gradients(saved, grad_output, grad_lse)
    inputs = saved[0].q, saved[0].k, saved[0].v
    for name, ours, theirs, true, like in zip("qkv", found, eager, truth, inputs, strict=True):
        assert ours.stride() == torch.empty_like(like).stride()
        floor = score_floor(truth_scores, true)
        assert_within_eager_error(ours, theirs, true, f"gradient of {name}", floor)


@pytest.mark.parametrize(("_name", "device", "dtype"), NAIVE)
def test_gradients_of_queries_that_see_nothing(_name, device, dtype):
    saved = tuple(forwards(Problem(1, 2, 70, 30, 32, causal=True), device, dtype, 1.0))
    grad_output = torch.ones(1, 1, 1, 1, dtype=dtype, device=device).expand_as(saved[0].q)
    found, _, _ = gradients(saved, grad_output, None)
    assert not found[0][:, :, :40].any()
    assert found[0][:, :, 41:].any(-1).all()
    assert all(gradient.isfinite().all() for gradient in found)


@pytest.mark.parametrize(("_name", "device", "dtype"), NAIVE)
def test_rows_longer_than_a_program_holds(_name, device, dtype, monkeypatch):
    """The softmax walks such rows twice. The interpreter gets shorter programs, so that short rows do."""
    longest = 64 if device == "cpu" else LONGEST_BLOCK
    monkeypatch.setattr(tile_sizes, "LONGEST_BLOCK", longest)
    problem = Problem(1, 1, 70, 2 * longest + 17, 16, causal=True)
    naive, eager = forwards(problem, device, dtype, 1.0)
    truth = reference.probabilities(naive.q, naive.k, 1.0, True)
    scores = reference.scores(naive.q, naive.k, 1.0, True)
    kept = naive.kept[..., : problem.keys]
    assert_within_eager_error(kept, eager.kept, truth, "P", score_floor(scores, truth))
    lse, true_lse = naive.log_sum_exp, scores.logsumexp(-1)
    assert_within_eager_error(lse, eager.log_sum_exp, true_lse, "log-sum-exp")


@pytest.mark.parametrize("keys", [1, 15, 16, 17, 1370, 4096, 4097, LONGEST_BLOCK, 10**6])
def test_softmax_tiles_cover_a_row(keys):
    columns = stored_columns(keys)
    tiles = softmax_tiles(columns)
    assert keys <= columns < keys + 16
    assert tiles.block_k >= min(columns, LONGEST_BLOCK)
    assert tiles.block_q * tiles.block_k == 1024 * tiles.warps


@pytest.mark.parametrize("matrices", [1, 2])
def test_a_matrix_that_cannot_fit_is_refused(matrices, monkeypatch):
    """With the figure; the backward pass, which stores two, is refused first."""

    class Properties:
        total_memory = 80e9

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    device, problem = torch.device("cuda"), Problem(1, 6, 80_000, 80_000, 64)  # 76.8 GB
    reason = reason_against_memory(problem, device, matrices)
    assert (reason is None) == (matrices == 1)
    assert reason is None or "154 GB" in reason
    assert supports_backward(problem, device) == reason_against_memory(problem, device, 2)
    assert supports_backward(problem, torch.device("cpu")) is None
