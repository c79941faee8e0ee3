"""What kernel tests share: the cases of a machine, and tensors for a problem."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from kernels import Problem
from kernels.registry import IMPLEMENTATIONS, load

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

WITH_BACKWARD = [name for name in IMPLEMENTATIONS if load(name).backward is not None]
"""Those whose gradients come from a backward pass of their own."""


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
