"""The operator as torch sees it: opcheck, torch.compile, CUDA graphs, a second GPU, a second derivative."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention, attention_columns, attention_rows
from kernels.implementation import Saved
from kernels.operator import attention_operator, backward_operator, compute
from kernels.registry import load
from tests.kernels.conftest import ON_GPU, WITH_BACKWARD, cases, make_tensors, require

pytestmark = pytest.mark.slow  # torch's compiler alone takes seconds to import

PROBLEM = Problem(1, 2, 20, 35, 24)
SHARED = Problem(1, 2, 17, 17, 16, causal=True, kv_heads=1)
BACKWARD_CASES = pytest.mark.parametrize(
    ("name", "device", "dtype"),
    [case for case in cases(WITH_BACKWARD) if case.values[2] == torch.float32],
)
"""One dtype is enough: none of this depends on it."""


def leaves(problem: Problem, device: str, dtype: torch.dtype) -> list[Tensor]:
    return [t.requires_grad_() for t in make_tensors(problem, device, dtype)]


def weighted(name: str, causal: bool):
    """A function of q, k and v with one number as its result, in which both results play a part."""

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output, lse = attention(q, k, v, causal=causal, implementation=name)
        share = torch.arange(output.numel(), device=q.device).view(output.shape) / output.numel()
        return (output.float() * share).sum() + lse.cos().sum()

    return loss


def with_gradients(loss, tensors) -> list[Tensor]:
    value = loss(*tensors)
    return [value.detach(), *torch.autograd.grad(value, tensors)]


# --- what torch.library asks ------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [PROBLEM, SHARED, Problem(1, 2, 0, 5, 8)], ids=str)
@BACKWARD_CASES
def test_opcheck_of_attention(name, problem, device, dtype):
    require(problem, name, device, dtype, backward=True)
    tensors = leaves(problem, device, dtype)
    torch.library.opcheck(attention_operator, (*tensors, 0.2, problem.causal, name, True))
    plain = [t.detach() for t in tensors]
    torch.library.opcheck(attention_operator, (*plain, 0.2, problem.causal, name, False))


@pytest.mark.parametrize("problem", [PROBLEM, SHARED, Problem(1, 2, 0, 5, 8)], ids=str)
@BACKWARD_CASES
def test_opcheck_of_its_backward(name, problem, device, dtype):
    require(problem, name, device, dtype, backward=True)
    q, k, v = make_tensors(problem, device, dtype)
    found = compute(q, k, v, 0.2, problem.causal, name, keep=True)
    for grad_lse in (None, torch.randn_like(found[1])):
        saved = (torch.randn_like(q), grad_lse, q, k, v, *found)
        torch.library.opcheck(backward_operator, (*saved, 0.2, problem.causal, name))


# --- torch.compile ----------------------------------------------------------------------------------


@BACKWARD_CASES
def test_compiled_without_a_break_it_is_the_same(name, device, dtype):
    """aot_eager traces forward and backward through the operators' fake twins, and compiles nothing."""
    torch.compiler.reset()
    for problem in (PROBLEM, SHARED):
        require(problem, name, device, dtype, backward=True)
        loss, tensors = weighted(name, problem.causal), leaves(problem, device, dtype)
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        for one, other in zip(
            with_gradients(compiled, tensors), with_gradients(loss, tensors), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@BACKWARD_CASES
def test_one_graph_for_every_length(name, device, dtype):
    torch.compiler.reset()
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    loss = weighted(name, causal=False)
    compiled = torch.compile(loss, fullgraph=True, backend=counting, dynamic=True)
    for tokens in (19, 23, 40):
        problem = Problem(1, 2, tokens, tokens + 3, 16)
        require(problem, name, device, dtype, backward=True)
        tensors = leaves(problem, device, dtype)
        for one, other in zip(
            with_gradients(compiled, tensors), with_gradients(loss, tensors), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert len(graphs) == 1


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", ON_GPU)
def test_compiled_by_inductor(name):
    torch.compiler.reset()
    loss, tensors = weighted(name, causal=True), leaves(SHARED, "cuda", torch.bfloat16)
    compiled = torch.compile(loss, fullgraph=True)
    for one, other in zip(
        with_gradients(compiled, tensors), with_gradients(loss, tensors), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


# --- CUDA graphs ------------------------------------------------------------------------------------


def replayed(step, static: list[Tensor], fresh: list[Tensor]) -> list[Tensor]:
    """Capture step(*static), copy fresh data into the static inputs, replay, and give what came out."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(*static)  # compiles what there is to compile
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(*static)
    with torch.no_grad():
        for place, values in zip(static, fresh, strict=True):
            place.copy_(values)
    for result in results:
        result.detach().fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    return [result.detach().clone() for result in results]


@pytest.mark.gpu
@pytest.mark.parametrize("problem", [Problem(2, 3, 197, 197, 64), SHARED], ids=str)
@pytest.mark.parametrize("name", ON_GPU)
def test_captured_forward_on_new_data(name, problem):
    static = list(make_tensors(problem, "cuda", torch.float16))
    fresh = [torch.randn_like(t) for t in static]

    def step(q, k, v):
        return attention(q, k, v, causal=problem.causal, implementation=name)

    for one, other in zip(replayed(step, static, fresh), step(*fresh), strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("problem", [Problem(2, 3, 197, 197, 64), SHARED], ids=str)
@pytest.mark.parametrize("name", ON_GPU)
def test_captured_backward_on_new_data(name, problem):
    static = leaves(problem, "cuda", torch.float16)
    static.append(torch.randn_like(static[0]).detach())
    fresh = [torch.randn_like(t).requires_grad_(t.requires_grad) for t in static]

    def step(q, k, v, outer):
        output, _ = attention(q, k, v, causal=problem.causal, implementation=name)
        return torch.autograd.grad(output, (q, k, v), outer)

    for one, other in zip(replayed(step, static, fresh), step(*fresh), strict=True):
        assert torch.equal(one, other)


# --- devices and derivatives ------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_the_second_gpu_while_the_first_is_current(name):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only; this takes two")
    torch.cuda.set_device(0)
    here, there = (leaves(SHARED, device, torch.float16) for device in ("cuda:0", "cuda:1"))
    found = []
    for q, k, v in (here, there):
        output, lse = attention(q, k, v, causal=True, implementation=name)
        grads = torch.autograd.grad(output.float().square().sum(), (q, k, v))
        rows = attention_rows(q.detach(), k.detach(), lse.detach(), [0, 5], causal=True)
        columns = attention_columns(q.detach(), k.detach(), lse.detach(), [3], causal=True)
        found.append([output, lse, *grads, rows, columns])
        assert all(t.device == q.device for t in found[-1])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.cpu(), other.cpu())


@BACKWARD_CASES
def test_a_second_derivative_is_refused(name, device, dtype):
    """Better a sentence than the derivative of something else."""
    require(PROBLEM, name, device, dtype, backward=True)
    q, k, v = leaves(PROBLEM, device, dtype)
    output, _ = attention(q, k, v, implementation=name)
    (grad,) = torch.autograd.grad(output.float().square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="flashlens"):
        grad.float().square().sum().backward()


@BACKWARD_CASES
def test_the_backward_pass_writes_into_nothing_it_was_given(name, device, dtype):
    """A graph that is kept can be walked twice, with the same result."""
    require(PROBLEM, name, device, dtype, backward=True)
    chosen, (q, k, v) = load(name), make_tensors(PROBLEM, device, dtype)
    output, lse, kept = compute(q, k, v, 0.2, False, name, keep=True)
    given = (q, k, v, output, lse, kept, torch.randn_like(q), torch.randn_like(lse))
    copies = [t.clone() for t in given]
    saved = Saved(*given[:6], 0.2, False)
    first = chosen.backward(saved, *given[6:])
    second = chosen.backward(saved, *given[6:])
    for one, other in zip((*first, *given), (*second, *copies), strict=True):
        assert torch.equal(one, other)
