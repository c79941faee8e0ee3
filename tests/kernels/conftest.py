"""What kernel tests share: the cases of a machine, and tensors for a problem."""

from __future__ import annotations

import dataclasses
import importlib
import zlib
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch import Tensor

from kernels import Problem
from kernels.registry import IMPLEMENTATIONS, load
from tests.conftest import interpreter

DTYPES = {
    "cpu": (torch.float32, torch.float16),
    "cuda": (torch.float32, torch.float16, torch.bfloat16),
}
INTERPRETED = ("naive", "fa1", "fa2", "kernels.recompute.in_triton")
"""What on a CPU runs in Triton's interpreter, so only on a machine without a GPU."""

PEERS = [name for name in IMPLEMENTATIONS if load(name).peer]
"""Other people's kernels, which run on a GPU only."""

PEER_FAULTS: dict[tuple[str, str], str] = {}
"""(peer, test, with or without its parameters) -> the fault of the peer's own that fails it."""

OURS = [name for name in ("naive", "fa1", "fa2") if name in IMPLEMENTATIONS]
"""Our own Triton kernels."""

ON_GPU = [*OURS, *(name for name in ("fa3",) if name in IMPLEMENTATIONS)]
"""And those in Gluon, which no interpreter runs. `require` skips what they refuse."""

WITH_BACKWARD = [name for name in IMPLEMENTATIONS if load(name).backward is not None]
"""Those whose gradients come from a backward pass of their own."""


@pytest.fixture(scope="session", autouse=True)
def interpreter_without_detours() -> Iterator[None]:
    """Triton's interpreter, three to four times faster, with the same results to the bit.

    It looks for an int32 overflow after each addition and multiplication of integers; the tensors here
    are far too small for one. And it makes Triton's language ready once more at each call of a device
    helper: the kernel that calls it has done so for ours, and for Triton's own once is enough.
    """
    if interpreter() is not None:
        yield
        return
    triton = importlib.import_module("triton.runtime.interpreter")
    unchecked = dataclasses.replace(triton.interpreter_builder.options, sanitize_overflow=False)
    ready = set()

    def call_device_helper(helper, *args, **kwargs):
        if helper.fn.__module__ not in ready:
            triton._patch_lang(helper.fn)
            ready.add(helper.fn.__module__)
        return helper.rewrite()(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton.interpreter_builder, "options", unchecked)
        patch.setattr(triton.InterpretedFunction, "__call__", call_device_helper)
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors are small here, and threads that wait for each other are nine times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def peer_faults(request: pytest.FixtureRequest) -> None:
    """A test that a peer is known to fail is expected to fail, and says through whose fault."""
    case = getattr(request.node, "callspec", None)
    name = case.params.get("name") if case else None
    for test in (request.node.originalname, request.node.name):
        if (name, test) in PEER_FAULTS:
            request.applymarker(pytest.mark.xfail(reason=PEER_FAULTS[name, test]))


def make_tensors(
    problem: Problem, device: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Fresh unit-normal q, k, v; the seed follows from the problem, so a failure repeats."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{problem} {dtype}".encode()))
    kv_heads = problem.kv_heads or problem.heads
    q_shape = (problem.batch, problem.heads, problem.queries, problem.head_dim)
    kv_shape = (problem.batch, kv_heads, problem.keys, problem.head_dim)
    q, k, v = (torch.randn(s, generator=generator) for s in (q_shape, kv_shape, kv_shape))
    return q.to(device, dtype), k.to(device, dtype), v.to(device, dtype)


def require(
    problem: Problem, name: str, device: str, dtype: torch.dtype, backward: bool = False
) -> None:
    """Skip what the implementation itself refuses, with its own sentence."""
    kind = str(dtype).removeprefix("torch.")
    asked = dataclasses.replace(problem, dtype=kind)
    chosen, target = load(name), torch.device(device)
    reason = chosen.supports(asked, target)
    if reason is None and backward:
        reason = chosen.reason_against_backward(asked, target)
    if reason is None and device == "cpu" and problem.queries > 1000:
        reason = "float64 on the CPU takes minutes at this size; a GPU runs it."
    if reason:
        pytest.skip(reason)


def fit_for(problem: Problem, name: str, device: str) -> Problem:
    """The interpreter takes long over many heads: in larger problems one group of heads stands for all."""
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    if device == "cuda" or name not in INTERPRETED or scores < 24_000 or problem.queries > 1000:
        return problem
    if problem.kv_heads:
        return dataclasses.replace(problem, heads=problem.group, kv_heads=1)
    return dataclasses.replace(problem, batch=1, heads=1)


def cases(names: Iterable[str]) -> list:
    """(name, device, dtype) of everything to try; what runs in Triton's interpreter is marked so."""
    found = []
    for name in names:
        for device, dtypes in DTYPES.items():
            if device == "cpu" and name in PEERS:
                continue
            for dtype in dtypes:
                interpreted = device == "cpu" and name in INTERPRETED
                mark = {"cuda": pytest.mark.gpu, "cpu": pytest.mark.interpreter}[device]
                marks = mark if device == "cuda" or interpreted else ()
                label = f"{name.rpartition('.')[2]}-{device}-{str(dtype).removeprefix('torch.')}"
                found.append(pytest.param(name, device, dtype, id=label, marks=marks))
    return found
