"""The backward pass for Hopper: right against float64, the same bits every time, and nothing spilled."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels import Problem, reference
from kernels.compiled import SHARED_BYTES, Request, compile_for
from kernels.implementation import Saved
from kernels.registry import load
from tests.kernels.conftest import make_tensors
from tests.kernels.test_backward import gradients, outer_gradients, uncancelled
from tests.numerics import assert_within_eager_error

pytestmark = pytest.mark.usefixtures("poisoned_empty")

ON_HOPPER = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs an H100 or H200",
)
MOST_STACK_BYTES = 128
"""Numbers that are needed once a tile, or once: no tile of numbers is among them."""

EPS = torch.finfo(torch.float32).eps

PROBLEMS = [
    Problem(1, 1, 1, 1, 64),
    Problem(1, 2, 128, 128, 64),
    Problem(2, 3, 129, 257, 64),
    Problem(2, 4, 300, 517, 64, kv_heads=2),
    Problem(1, 8, 700, 333, 64, kv_heads=1),
    Problem(1, 2, 1370, 1370, 64),
    Problem(16, 6, 197, 197, 64),
    Problem(1, 2, 63, 4000, 64),
    Problem(1, 2, 4000, 63, 64),
    Problem(1, 2, 260, 391, 8),
    Problem(1, 2, 260, 391, 40),
    Problem(2, 4, 260, 391, 96, kv_heads=2),
    Problem(1, 2, 128, 128, 128),
    Problem(1, 4, 700, 333, 128, kv_heads=2),
    Problem(1, 2, 333, 700, 128),
]


Tensors = tuple[Tensor, Tensor, Tensor]


def launched(
    tensors: Tensors, scale: float, causal: bool, grad_output: Tensor, grad_lse: Tensor | None
):
    """Gradients by the backward pass alone, from results that fa2 left."""
    from kernels.fa3.backward import launch_one_pass

    output, log_sum_exp = load("fa2").forward(*tensors, scale, causal)
    nothing = output.new_empty(0)
    saved = Saved(*tensors, output, log_sum_exp, nothing, scale, causal)
    return launch_one_pass(saved, grad_output, grad_lse)


def check(
    tensors: Tensors, scale: float, causal: bool, grad_output: Tensor, grad_lse: Tensor | None
) -> None:
    """The house bound: twice eager's error, and what rounding in float32 does."""
    found = launched(tensors, scale, causal, grad_output, grad_lse)
    eager = gradients("eager", tensors, scale, causal, grad_output, grad_lse)
    truth = reference.gradients(*tensors, scale, causal, grad_output, grad_lse)
    scores = reference.scores(tensors[0], tensors[1], scale, causal)
    share = EPS * (2 + 2 * scores[torch.isfinite(scores)].abs().max().item())
    magnitude = uncancelled(*tensors, scale, causal, grad_output, grad_lse)
    for what, g, e, t, m in zip(("dQ", "dK", "dV"), found, eager, truth, magnitude, strict=True):
        assert (g.shape, g.dtype) == (t.shape, tensors[0].dtype), what
        assert_within_eager_error(g, e, t, what, floor=share * m.max().item())
        error, eager_error = ((x.double() - t).norm().item() for x in (g, e))
        rounding = torch.finfo(g.dtype).eps * t.norm().item() + share * m.norm().item()
        assert error <= 2 * eager_error + rounding, f"{what}: {error:.3g} in the norm"


@ON_HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients(problem, causal, dtype):
    tensors = make_tensors(replace(problem, causal=causal), "cuda", dtype)
    with_lse = problem.heads % 2 == 0
    check(tensors, problem.head_dim**-0.5, causal, *outer_gradients(tensors[0], with_lse))


@ON_HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    "problem", [Problem(2, 6, 2100, 2100, 64), Problem(1, 6, 4200, 4200, 64)], ids=str
)
def test_every_run_gives_the_same_bits(problem, causal, head_dim):
    """More key tiles than fit on the GPU at once, so that waves follow one another; the last of 4200 is cut."""
    tensors = make_tensors(replace(problem, head_dim=head_dim), "cuda", torch.bfloat16)
    outer, grad_lse = outer_gradients(tensors[0], True)
    first = launched(tensors, head_dim**-0.5, causal, outer, grad_lse)
    for _ in range(100):
        again = launched(tensors, head_dim**-0.5, causal, outer, grad_lse)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@ON_HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1024, 4096])
def test_whole_numbers_come_out_exact(tokens):
    """Q = 0 gives every key the same weight, 1 / keys, a power of two: dV is a mean, exact in float32.

    A product that reads its registers too late, or a tile of dQ that is added twice, shows here at once. With 4096
    tokens walks are cut into parts.
    """
    q, k, v = make_tensors(Problem(1, 4, tokens, tokens, 64), "cuda", torch.bfloat16)
    outer = torch.randint_like(q, -4, 5)
    whole = (torch.zeros_like(q), torch.randint_like(k, -4, 5), torch.randint_like(v, -4, 5))
    exact = (outer.double().sum(2, keepdim=True) / tokens).to(v.dtype).expand_as(v)
    truth = reference.gradients(*whole, 1.0, False, outer, None)[0]
    for _ in range(50):
        grad_q, grad_k, grad_v = launched(whole, 1.0, False, outer, None)
        assert torch.equal(grad_v, exact)
        assert not grad_k.any()
        assert (grad_q.double() - truth).abs().max() <= 2**-7 * truth.abs().max()


@ON_HOPPER
@pytest.mark.gpu
def test_a_graph_replays_it():
    """Tickets and turns are counted anew in every launch, so a replay finds them at zero too."""
    tensors = make_tensors(Problem(1, 2, 1000, 1000, 64), "cuda", torch.bfloat16)
    outer, _ = outer_gradients(tensors[0], False)
    expected = launched(tensors, 0.125, False, outer, None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = launched(tensors, 0.125, False, outer, None)
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_it_compiles_for_hopper(head_dim):
    """The products are left in flight and fit: ptxas puts a wait behind each where registers run out."""
    requests = [
        Request(
            "fa3", Problem(1, 2, 1024, 1024, head_dim, dtype="bfloat16", causal=c), what="backward"
        )
        for c in (False, True)
    ]
    for kernels in compile_for(requests):
        assert not isinstance(kernels, str), kernels
        (main,) = [one for one in kernels if one.kernel == "pass_kernel"]
        assert main.shared_bytes <= SHARED_BYTES["sm_90"]
        # A wait behind every product would make as many more of them: both opcodes begin so.
        assert main.instructions["WARPGROUP"] < main.instructions["HGMMA"] / 2
        assert main.stack_bytes <= MOST_STACK_BYTES
        assert not main.written_in_flight, main.written_in_flight[:3]
