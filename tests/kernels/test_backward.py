"""Every backward pass against the matrix formulas in float64, on memory that holds NaN before it is written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention, reference
from kernels.problem import PROBLEMS
from tests.kernels.conftest import WITH_BACKWARD, cases, fit_for, make_tensors, require
from tests.numerics import assert_within_eager_error

pytestmark = pytest.mark.usefixtures("poisoned_empty")

TORCH_EXP = {torch.float32: 2e-5, torch.float16: 1e-4, torch.bfloat16: 1e-4}
"""torch's CPU kernel approximates exp, more or less well from one kind of processor to the next."""

COARSE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Relative error that eager itself keeps to, so that a bound made from it is worth something."""

EPS = torch.finfo(torch.float32).eps
BACKWARD_CASES = pytest.mark.parametrize(("name", "device", "dtype"), cases(WITH_BACKWARD))


def gradients(name: str, tensors, scale, causal, grad_output, grad_lse=None):
    """Gradients of q, k and v through the public door; either of the two results may go unused."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    results = attention(*leaves, scale, causal, implementation=name)
    used = [(r, g) for r, g in zip(results, (grad_output, grad_lse), strict=True) if g is not None]
    return torch.autograd.grad([r for r, _ in used], leaves, [g for _, g in used])


def outer_gradients(q: Tensor, with_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Unit-normal gradients of the output and, where asked, of the log-sum-exp."""
    generator = torch.Generator().manual_seed(q.numel())
    grad_output = torch.randn(q.shape, generator=generator).to(q.device, q.dtype)
    grad_lse = torch.randn(q.shape[:3], generator=generator).to(q.device)
    return grad_output, grad_lse if with_lse else None


def uncancelled(q, k, v, scale, causal, grad_output, grad_lse) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients if nothing cancelled: what rounding in float32 is relative to, in any kernel."""
    group = q.shape[1] // k.shape[1]
    weights = reference.probabilities(q, k, scale, causal)
    q, k, v, grad_output = (t.double().abs() for t in (q, k, v, grad_output))
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    grad_weights = grad_output @ v.mT
    delta = (weights * grad_weights).sum(-1, keepdim=True)
    if grad_lse is not None:
        delta = delta + grad_lse.double().abs().unsqueeze(-1)
    grad_scores = abs(scale) * weights * (grad_weights + delta)
    grad_k, grad_v = grad_scores.mT @ q, weights.mT @ grad_output
    grad_k, grad_v = (g.unflatten(1, (-1, group)).sum(2) for g in (grad_k, grad_v))
    return grad_scores @ k, grad_k, grad_v


def check(name, tensors, scale: float, causal: bool, grad_output, grad_lse, more=0.0) -> None:
    """dQ, dK and dV of one implementation, bounded by eager's error: the largest, and in the norm.

    `more`: what the bound allows besides, as a share of the gradients if nothing cancelled.
    """
    dtype = tensors[0].dtype
    found = gradients(name, tensors, scale, causal, grad_output, grad_lse)
    eager = gradients("eager", tensors, scale, causal, grad_output, grad_lse)
    outer = torch.zeros_like(tensors[0]) if grad_output is None else grad_output
    truth = reference.gradients(*tensors, scale, causal, outer, grad_lse)
    scores = reference.scores(tensors[0], tensors[1], scale, causal)
    # A score rounded in float32 moves its weight by as much as the score is large.
    share = EPS * (2 + 2 * scores[torch.isfinite(scores)].abs().max().item()) + more
    share += TORCH_EXP[dtype] if name == "torch-cpu-flash" else 0.0
    magnitude = uncancelled(*tensors, scale, causal, outer, grad_lse)
    for what, g, e, t, m in zip(("dQ", "dK", "dV"), found, eager, truth, magnitude, strict=True):
        assert (g.shape, g.dtype) == (t.shape, dtype), what
        assert_within_eager_error(g, e, t, what, floor=share * m.max().item())
        size = t.norm().item()
        error, eager_error = ((x.double() - t).norm().item() for x in (g, e))
        rounding = torch.finfo(dtype).eps * size + share * m.norm().item()
        assert eager_error <= COARSE[dtype] * m.norm().item(), f"{what}: eager itself is off"
        assert error <= 2 * eager_error + rounding, f"{what}: {error:.3g} in the norm of {size:.3g}"


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@BACKWARD_CASES
def test_gradients(name, problem, device, dtype):
    """Both results used, so delta and the gradient of the log-sum-exp are in it."""
    require(problem, name, device, dtype, backward=True)
    problem = fit_for(problem, name, device)
    tensors = make_tensors(problem, device, dtype)
    check(name, tensors, problem.head_dim**-0.5, problem.causal, *outer_gradients(tensors[0], True))


@pytest.mark.parametrize("use", ["output", "log-sum-exp"])
@pytest.mark.parametrize(
    "problem",
    [Problem(1, 4, 37, 70, 40, kv_heads=2), Problem(1, 2, 70, 37, 32, causal=True)],
    ids=str,
)
@BACKWARD_CASES
def test_only_one_result_is_used(name, problem, use, device, dtype):
    require(problem, name, device, dtype, backward=True)
    tensors = make_tensors(problem, device, dtype)
    grad_output, grad_lse = outer_gradients(tensors[0], True)
    if use == "output":
        grad_lse = None
    else:
        grad_output = None
    check(name, tensors, problem.head_dim**-0.5, problem.causal, grad_output, grad_lse)


@pytest.mark.parametrize("scale", [0.0, -0.4, 3.0])
@BACKWARD_CASES
def test_any_scale(name, scale, device, dtype):
    problem = Problem(1, 2, 33, 70, 32)
    require(problem, name, device, dtype, backward=True)
    tensors = make_tensors(problem, device, dtype)
    if scale == 3.0:
        # Scores of +-50: the softmax is all but one-hot, and half of float16's digits of a score are gone.
        tensors = tuple(t / 2 for t in tensors)
    check(name, tensors, scale, False, *outer_gradients(tensors[0], True))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [16, 32, 64])
@BACKWARD_CASES
def test_large_scores_give_no_nan(name, head_dim, causal, device, dtype):
    """Keys behind the last, if only masked in the forward pass, overflow here: NaN in dQ.

    With one key, or one that outweighs all, dP and delta cancel. Eager rounds both alike, so its error is 0
    by luck; naive stores dP in 16 bits beside a float32 delta, and half a unit in dP's last place remains.
    """
    more = torch.finfo(dtype).eps / 2 if name == "naive" else 0.0
    for tokens in (1, 2, 5, 17, 128):
        problem = Problem(1, 1, tokens, tokens, head_dim, causal=causal)
        require(problem, name, device, dtype, backward=True)
        q, k, v = make_tensors(problem, device, dtype)
        outer = outer_gradients(q, False)
        check(name, (q * 5, k * 3, v * 3), head_dim**-0.5, causal, *outer, more=more)


@BACKWARD_CASES
def test_queries_that_see_nothing_get_no_gradient(name, device, dtype):
    """Causal with 70 queries and 30 keys: the first 40 see nothing, whatever their results were used for."""
    problem = Problem(1, 2, 70, 30, 16, causal=True)
    require(problem, name, device, dtype, backward=True)
    tensors = make_tensors(problem, device, dtype)
    grad_output, grad_lse = outer_gradients(tensors[0], True)
    with_all = gradients(name, tensors, 0.25, True, grad_output, grad_lse)
    assert not with_all[0][:, :, :40].any()
    grad_output[:, :, :40], grad_lse[:, :, :40] = 0, 0
    without = gradients(name, tensors, 0.25, True, grad_output, grad_lse)
    for one, other in zip(with_all, without, strict=True):
        assert torch.equal(one, other)


@BACKWARD_CASES
def test_outer_gradients_of_any_strides(name, device, dtype):
    """Every second batch of a permuted tensor; one number expanded, as sum() hands it back."""
    problem = Problem(2, 2, 37, 41, 32)
    require(problem, name, device, dtype, backward=True)
    tensors = make_tensors(problem, device, dtype)
    plain, _ = outer_gradients(tensors[0], False)
    strided = torch.empty(4, 37, 32, 2, dtype=dtype, device=device)[::2].permute(0, 3, 1, 2)
    strided.copy_(plain)
    expanded = torch.ones((), dtype=dtype, device=device).expand_as(plain)
    for outer in (strided, expanded):
        expected = gradients(name, tensors, 0.2, False, outer.contiguous())
        found = gradients(name, tensors, 0.2, False, outer)
        for one, other in zip(found, expected, strict=True):
            assert (one.double() - other.double()).abs().max() <= 1e-3
    leaves = [t.detach().requires_grad_() for t in tensors]
    attention(*leaves, 0.2, implementation=name)[0].sum().backward()
    assert torch.equal(leaves[2].grad, found[2])


@BACKWARD_CASES
def test_inputs_of_any_strides(name, device, dtype):
    """Views of a fused projection, every second element, an expanded batch: a gradient like each input."""
    problem = Problem(2, 2, 41, 41, 32)
    require(problem, name, device, dtype, backward=True)
    q, k, v = make_tensors(problem, device, dtype)
    fused = torch.stack([q, k, v]).permute(1, 3, 0, 2, 4).contiguous().permute(2, 0, 3, 1, 4)
    views = (q.repeat_interleave(2, dim=-1)[..., ::2], fused[1], v[:1].expand_as(v))
    outer, _ = outer_gradients(q, False)
    expected = gradients(name, [t.contiguous() for t in views], 0.2, False, outer)
    for view, one, other in zip(
        views, gradients(name, views, 0.2, False, outer), expected, strict=True
    ):
        assert one.shape == view.shape
        assert (one.double() - other.double()).abs().max() <= 1e-3


@pytest.mark.parametrize("tokens", [1, 63, 65])
@BACKWARD_CASES
def test_nothing_leaks_from_behind_the_end(name, tokens, device, dtype):
    """NaN behind the last token, behind the width and in the next head must not touch a gradient."""
    problem = Problem(1, 2, tokens, tokens, 40)
    require(problem, name, device, dtype, backward=True)
    plain = make_tensors(problem, device, dtype)
    outer, grad_lse = outer_gradients(plain[0], True)
    buried = []
    for tensor in (*plain, outer):
        whole = torch.full((1, 3, tokens + 70, 48), torch.nan, dtype=dtype, device=device)
        buried.append(whole[:, :2, :tokens, :40].copy_(tensor))
    expected = gradients(name, plain, 0.2, False, outer, grad_lse)
    found = gradients(name, buried[:3], 0.2, False, buried[3], grad_lse)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other.double()).abs().max() <= 1e-3


@BACKWARD_CASES
def test_gradient_of_some_inputs_only(name, device, dtype):
    problem = Problem(1, 2, 20, 30, 16)
    require(problem, name, device, dtype, backward=True)
    tensors = make_tensors(problem, device, dtype)
    outer, _ = outer_gradients(tensors[0], False)
    everything = gradients(name, tensors, 0.2, False, outer)
    for place, expected in enumerate(everything):
        mixed = [t.detach().requires_grad_(i == place) for i, t in enumerate(tensors)]
        output, _ = attention(*mixed, 0.2, implementation=name)
        (found,) = torch.autograd.grad(output, mixed[place], outer)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", WITH_BACKWARD)
@pytest.mark.parametrize(
    "shape",
    [(0, 2, 5, 5, 8), (1, 0, 5, 5, 8), (1, 2, 0, 5, 8), (1, 2, 5, 0, 8), (1, 2, 5, 5, 0)],
    ids=["batch", "heads", "queries", "keys", "width"],
)
def test_empty(name, shape):
    """Nothing to see: the gradients are there, and zero."""
    batch, heads, queries, keys, dim = shape
    require(Problem(*shape), name, "cpu", torch.float32, backward=True)
    q = torch.randn(batch, heads, queries, dim)
    k = torch.randn(batch, heads, keys, dim)
    for grad in gradients(name, (q, k, k), None, False, torch.ones_like(q)):
        assert not grad.any()
