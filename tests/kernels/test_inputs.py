"""Inputs that trip kernels: odd widths, few tokens, huge grids, huge strides, and float32 that is meant."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention, reference
from kernels.registry import IMPLEMENTATIONS, load
from tests.kernels.conftest import (
    INTERPRETED,
    ON_GPU,
    OURS,
    WITH_BACKWARD,
    cases,
    make_tensors,
    require,
)
from tests.kernels.test_backward import check as check_gradients
from tests.kernels.test_backward import outer_gradients
from tests.kernels.test_forward import check as check_forward

CASES = pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))


def check(problem: Problem, name: str, device: str, dtype: torch.dtype) -> None:
    """Forward, and backward where there is one."""
    require(problem, name, device, dtype)
    check_forward(problem, name, device, dtype)
    if name in WITH_BACKWARD:
        tensors = make_tensors(problem, device, dtype)
        outer = outer_gradients(tensors[0], True)
        check_gradients(name, tensors, problem.head_dim**-0.5, problem.causal, *outer)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("head_dim", [1, 40, 59, 72, 80, 96, 256])
@CASES
def test_any_width(name, head_dim, device, dtype):
    """Between two powers of two a tile is padded, and the scale is still 1 / sqrt of the true width."""
    check(Problem(1, 1, 19, 35, head_dim), name, device, dtype)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@CASES
def test_few_tokens(name, causal, device, dtype):
    for tokens in (1, 2, 15, 16, 17):
        check(Problem(1, 1, tokens, tokens, 16, causal=causal), name, device, dtype)


@pytest.mark.parametrize(("queries", "keys"), [(1, 65), (65, 1), (2, 5), (5, 2)])
@CASES
def test_causal_is_aligned_to_the_bottom_right(name, queries, keys, device, dtype):
    check(Problem(1, 1, queries, keys, 16, causal=True), name, device, dtype)


# --- the grid ---------------------------------------------------------------------------------------


@pytest.fixture
def grids(monkeypatch) -> list[tuple[int, ...]]:
    """Grids that were asked for; nothing is computed."""
    asked = []
    interpreter = importlib.import_module("triton.runtime.interpreter")

    def record(executor, *args, **kwargs):
        assert not callable(executor.grid), "a grid that follows from the sizes is a plain tuple"
        asked.append(tuple(executor.grid))

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", record)
    return asked


@pytest.mark.interpreter
@pytest.mark.parametrize("name", OURS)
def test_everything_lies_on_the_first_axis(name, grids):
    """A GPU takes 2^31 programs on the first axis of a grid, and 65535 on the others. The interpreter takes any."""
    q = torch.zeros(1, 70_000, 3, 16, dtype=torch.float16, requires_grad=True)
    output, lse = attention(q, q, q, implementation=name)
    forward = len(grids)
    assert forward
    if name in WITH_BACKWARD:
        torch.autograd.grad((output, lse), q, (output, lse))
        assert len(grids) > forward
    assert all(n == 1 for grid in grids for n in grid[1:]), grids
    assert all(grid[0] <= 2**31 - 1 for grid in grids)


@pytest.mark.interpreter
def test_rebuilding_keeps_to_the_limits_of_a_grid(grids):
    in_triton = importlib.import_module("kernels.recompute.in_triton")
    q, lse = torch.zeros(1, 70_000, 16, 16, dtype=torch.float16), torch.zeros(1, 70_000, 16)
    index = torch.zeros(40, dtype=torch.int64)
    in_triton.rows(q, q, lse, index, 0.25, False)
    in_triton.columns(q, q, lse, index, 0.25, False)
    if hasattr(in_triton, "product"):
        in_triton.product(None, q, q, lse, 0.25, False)
    assert len(grids) >= 2
    assert all(n <= 65535 for grid in grids for n in grid[1:]), grids


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_seventy_thousand_heads(name):
    check(Problem(700, 100, 16, 16, 16), name, "cuda", torch.float16)


# --- offsets beyond 32 bits -------------------------------------------------------------------------


def far_apart(which: str) -> list[Tensor]:
    """q, k, v and an outer gradient, [1, 2, tokens, 64], as views of one large buffer.

    "in a tile": two rows of one tile lie more than 2^31 elements apart; "rows": only rows of different
    tiles do; "heads": the two heads do.
    """
    tokens, row, head = {
        "in a tile": (300, 2**23, 256),
        "rows": (600, 2**22, 256),
        "heads": (300, 256, 2**31),
    }[which]
    size = (tokens - 1) * row + head + 256
    buffer = torch.empty(size, dtype=torch.float16, device="cuda")
    views = [
        buffer.as_strided((1, 2, tokens, 64), (0, head, row, 1), storage_offset=64 * place)
        for place in range(4)
    ]
    for view in views:
        view.normal_()
    assert 4.2e9 < buffer.nbytes < 5.4e9
    return views


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["in a tile", "rows", "heads"])
@pytest.mark.parametrize("name", ON_GPU)
def test_offsets_beyond_32_bits(name, which):
    """The same bits as from tensors that lie close together."""
    *tensors, outer = far_apart(which)
    results = []
    for q, k, v, outer_gradient in ((*tensors, outer), [t.contiguous() for t in (*tensors, outer)]):
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        output, lse = attention(*leaves, implementation=name)
        used = torch.autograd.grad(output, leaves, outer_gradient) if name in WITH_BACKWARD else ()
        results.append([output.detach(), lse.detach(), *used])
    for far, near in zip(*results, strict=True):
        assert torch.equal(far, near)


# --- float32 ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("name", OURS)
def test_float32_is_not_rounded_to_tf32(name, head_dim):
    """TF32 keeps ten bits of a product's factors: its error would be near 1e-3."""
    q, k, v = make_tensors(Problem(2, 2, 128, 128, head_dim), "cuda", torch.float32)
    outer, scale = torch.randn_like(q), head_dim**-0.5
    true_output, true_lse = reference.attention(q, k, v, scale)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    output, lse = attention(*leaves, implementation=name)
    assert (output.double() - true_output).abs().max() <= 1e-5
    assert (lse.double() - true_lse).abs().max() <= 1e-5
    if name in WITH_BACKWARD:
        truth = reference.gradients(*(t.detach() for t in leaves), scale, False, outer)
        for grad, true_grad in zip(torch.autograd.grad(output, leaves, outer), truth, strict=True):
            assert (grad.double() - true_grad).abs().max() <= 1e-5


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_what_cannot_run_is_refused_in_a_sentence(name):
    """Too wide, on a device without kernels, of a dtype that is not taken: one sentence, never a crash."""
    odd = [
        (Problem(1, 1, 8, 8, 320), "cpu"),
        (Problem(1, 1, 8, 8, 64), "meta"),
        (Problem(1, 1, 8, 8, 64, "float64"), "cpu"),
    ]
    for problem, device in odd:
        reason = load(name).supports(problem, torch.device(device))
        assert reason is None or (reason.endswith(".") and "\n" not in reason), reason
    if name in INTERPRETED:
        assert load(name).supports(*odd[0][:1], torch.device("cpu"))
