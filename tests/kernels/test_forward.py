"""Every implementation against float64, on every shape that this machine can run."""

from __future__ import annotations

import pytest
import torch

from kernels import Problem, attention, reference
from kernels.problem import PROBLEMS
from kernels.registry import IMPLEMENTATIONS, load
from tests.kernels.conftest import cases, fit_for, make_tensors
from tests.numerics import assert_within_eager_error, score_floor

TORCH_EXP = {torch.float32: 2e-5, torch.float16: 1e-4, torch.bfloat16: 1e-4}
"""torch's CPU kernel approximates exp, more or less well from one kind of processor to the next."""


def check(
    problem: Problem, name: str, device: str, dtype: torch.dtype, scale: float | None = None
) -> None:
    """Output and log-sum-exp of one implementation, bounded by eager's error."""
    q, k, v = make_tensors(problem, device, dtype)
    factor = problem.head_dim**-0.5 if scale is None else scale
    output, lse = attention(q, k, v, scale, problem.causal, implementation=name)
    eager_output, eager_lse = load("eager").forward(q, k, v, factor, problem.causal)
    true_output, true_lse = reference.attention(q, k, v, factor, problem.causal)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert (output.shape, lse.shape) == (true_output.shape, true_lse.shape)
    approximate = TORCH_EXP[dtype] if name == "torch-cpu-flash" else 0.0
    floor = approximate + score_floor(true_lse, true_output)
    assert_within_eager_error(output, eager_output, true_output, "output", floor)
    # m + log(l) in float32: a unit in the last place of the largest score, and one of a logarithm near 1.
    rounding = (
        2 * torch.finfo(torch.float32).eps * (1 + true_lse[true_lse.isfinite()].abs().max().item())
    )
    assert_within_eager_error(lse, eager_lse, true_lse, "log-sum-exp", approximate + rounding)


def skip_unsupported(problem: Problem, name: str, device: str, dtype: torch.dtype) -> None:
    """Skip what the implementation itself refuses, with its own sentence."""
    q, k, _ = make_tensors(problem, "cpu", dtype)
    asked = Problem.of(q, k, problem.causal)
    reason = load(name).supports(asked, torch.device(device))
    if reason:
        pytest.skip(reason)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))
def test_output_and_log_sum_exp(name, problem, device, dtype):
    skip_unsupported(problem, name, device, dtype)
    if device == "cpu" and problem.queries > 1000:
        pytest.skip("float64 on the CPU takes minutes at this size; a GPU runs it.")
    check(fit_for(problem, name, device), name, device, dtype)


@pytest.mark.parametrize("scale", [0.0, -0.4, 3.0])
@pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))
def test_any_scale(name, scale, device, dtype):
    problem = Problem(1, 2, 65, 97, 32)
    skip_unsupported(problem, name, device, dtype)
    check(problem, name, device, dtype, scale)


@pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))
def test_large_scores_stay_finite(name, device, dtype):
    """Scores of +-1e4: a kernel that forgets the maximum overflows."""
    problem = Problem(1, 1, 65, 200, 16)
    skip_unsupported(problem, name, device, dtype)
    if name in ("eager", "naive") and dtype == torch.bfloat16:
        pytest.skip(f"{name} stores its scores in bfloat16, 64 apart at this size.")
    q, k, v = make_tensors(problem, device, dtype)
    q, k = 60 * q.sign(), 10 * k.sign()  # whole scores up to 9600, exact in float16
    output, lse = attention(q, k, v, 1.0, implementation=name)
    true_output, true_lse = reference.attention(q, k, v, 1.0)
    assert (output.double() - true_output).abs().max() <= (
        2e-3 if dtype != torch.bfloat16 else 2e-2
    )
    assert (lse.double() - true_lse).abs().max() <= 1e-2


@pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))
def test_rows_that_may_see_nothing(name, device, dtype):
    """Causal with five queries and two keys: the first three see nothing."""
    problem = Problem(1, 1, 5, 2, 16, causal=True)
    skip_unsupported(problem, name, device, dtype)
    q, k, v = make_tensors(problem, device, dtype)
    output, lse = attention(q, k, v, causal=True, implementation=name)
    assert torch.equal(output[:, :, :3], torch.zeros_like(output[:, :, :3]))
    assert torch.equal(lse[:, :, :3], torch.full_like(lse[:, :, :3], -torch.inf))
    assert torch.equal(output[:, :, 3], v[:, :, 0])


@pytest.mark.parametrize("tokens", [1, 63, 65, 129])
@pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))
def test_nothing_leaks_from_behind_the_end(name, tokens, device, dtype):
    """NaN behind the last key and in the next head must not touch the result."""
    problem = Problem(1, 2, tokens, tokens, 40)
    skip_unsupported(problem, name, device, dtype)
    whole = [
        torch.full((1, 3, tokens + 70, 48), torch.nan, dtype=dtype, device=device) for _ in "qkv"
    ]
    views = [t[:, :2, :tokens, :40] for t in whole]
    plain = make_tensors(problem, device, dtype)
    for view, values in zip(views, plain, strict=True):
        view.copy_(values)
    output, lse = attention(*views, implementation=name)
    expected, expected_lse = attention(*plain, implementation=name)
    assert largest_difference(output, expected) <= 1e-3
    assert largest_difference(lse, expected_lse) <= 1e-3


@pytest.mark.parametrize(("name", "device", "dtype"), cases(IMPLEMENTATIONS))
def test_any_strides(name, device, dtype):
    """Views of a fused projection, every second element, an expanded batch."""
    problem = Problem(2, 2, 66, 66, 32)
    skip_unsupported(problem, name, device, dtype)
    q, k, v = make_tensors(problem, device, dtype)
    fused = torch.stack([q, k, v]).permute(1, 3, 0, 2, 4).contiguous().permute(2, 0, 3, 1, 4)
    stretched = q.repeat_interleave(2, dim=-1)[..., ::2]
    expanded = v[:1].expand_as(v)
    expected, _ = attention(q, k, expanded.contiguous(), implementation=name)
    output, _ = attention(stretched, fused[1], expanded, implementation=name)
    assert largest_difference(output, expected) <= 1e-3


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "shape",
    [(0, 2, 5, 5, 8), (1, 0, 5, 5, 8), (1, 2, 0, 5, 8), (1, 2, 5, 0, 8), (1, 2, 5, 5, 0)],
    ids=["batch", "heads", "queries", "keys", "width"],
)
def test_empty(name, shape):
    """Nothing to see: output 0, log-sum-exp -inf, and no crash."""
    batch, heads, queries, keys, dim = shape
    skip_unsupported(Problem(*shape), name, "cpu", torch.float32)
    q, k = torch.randn(batch, heads, queries, dim), torch.randn(batch, heads, keys, dim)
    output, lse = attention(q, k, k, implementation=name)
    assert output.shape == q.shape
    assert lse.shape == q.shape[:3]
    assert not output.any()
    assert torch.isneginf(lse).all()


def largest_difference(a, b):
    return (a.double() - b.double()).abs().max().item()
