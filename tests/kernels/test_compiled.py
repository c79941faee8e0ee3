"""What the compiler makes of every kernel for GPUs that are not here: it fits, and nothing spills.

Nothing runs; a machine without a GPU is enough. The launchers themselves are called, so what is compiled is
what would run.
"""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernels import Problem
from kernels.compiled import SHARED_BYTES, Request, compile_for
from kernels.tile_sizes import Tiles
from tests.kernels.conftest import OURS, WITH_BACKWARD

SAFE_SHARED_BYTES = 101_376
"""What every GPU from compute capability 8.0 has for one program: 99 KB. The rows "any" keep to it."""

LAUNCHES = (
    [(name, "forward") for name in OURS]
    + [(name, "backward") for name in OURS if name in WITH_BACKWARD]
    + [("recompute", "rows"), ("recompute", "columns")]
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
    ),
]


def ask(launch: tuple[str, str], architecture: str, row: str | None, sizes) -> list[Request]:
    """One request for each (head_dim, dtype), causal: that needs all that a full mask needs, and more."""
    name, what = launch
    return [
        Request(name, Problem(1, 4, 1000, 1000, dim, dtype, True), architecture, what, row)
        for dim, dtype in sizes
    ]


def compiled(requests: list[Request]):
    """(request, kernel) for all of them, in as many processes as there are cores."""
    count = min(os.cpu_count() or 1, len(requests))
    shares = [requests[i::count] for i in range(count)]
    with ThreadPoolExecutor(count) as threads:
        answers = list(threads.map(compile_for, shares))
    for share, answer in zip(shares, answers, strict=True):
        for request, kernels in zip(share, answer, strict=True):
            if isinstance(kernels, str) and request.architecture == "sm_100":
                pytest.skip(f"the installed Triton cannot: {kernels.splitlines()[0]}")
            assert not isinstance(kernels, str), f"{request}: {kernels}"
            assert kernels, f"{request}: nothing was launched"
            for kernel in kernels:
                yield request, kernel


def faults(requests: list[Request], shared_bytes: int) -> list[str]:
    """What is wrong with any of their kernels, one sentence each."""
    found = []
    for request, kernel in compiled(requests):
        where = f"{request}: {kernel.kernel} with {kernel.constants}, {kernel.warps} warps"
        if kernel.spills:
            found.append(f"{where} spills {kernel.stack_bytes} bytes")
        if kernel.shared_bytes > shared_bytes:
            found.append(f"{where} wants {kernel.shared_bytes} bytes of shared memory")
        if request.what in ("forward", "backward") and kernel.instructions.get("HMMA"):
            if request.architecture == "sm_90" and request.row is None:
                found.append(f"{where} multiplies without wgmma")
    return found


SAFE_SIZES = {
    "fa2": [(64, "float16"), (128, "float16"), (256, "float16"), (59, "float16"), (64, "float32")],
    "others": [(64, "float16"), (128, "float16"), (64, "float32")],
    "recompute": [(64, "float16"), (128, "float32")],
}
"""(head_dim, dtype). bfloat16 differs from float16 in the opcode's suffix only."""


@pytest.mark.parametrize("launch", LAUNCHES, ids="-".join)
def test_safe_rows_fit_every_gpu(launch):
    """On the smallest shared memory, and with the registers of an A100."""
    key = launch[0] if launch[0] in SAFE_SIZES else "others"
    found = faults(ask(launch, "sm_80", "any", SAFE_SIZES[key]), SAFE_SHARED_BYTES)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("launch", LAUNCHES, ids="-".join)
def test_hopper(launch):
    """What a launch on an H100 or H200 takes: tuned rows where there are some; wgmma in 16 bits."""
    sizes = [(64, "bfloat16"), (128, "float16")]
    if launch[0] == "fa2":
        sizes += [(256, "float16"), (59, "float16"), (128, "float32")]
    requests = ask(launch, "sm_90", None, sizes)
    found = faults(requests, SHARED_BYTES["sm_90"])
    assert not found, "\n".join(found)
    if launch[1] in ("forward", "backward"):
        with_wgmma = {r for r, kernel in compiled(requests) if kernel.instructions.get("HGMMA")}
        asked = {r for r in requests if r.problem.dtype != "float32"}
        assert with_wgmma == asked, "no wgmma in: " + ", ".join(map(str, asked - with_wgmma))


@pytest.mark.parametrize("launch", [item for item in LAUNCHES if item[0] == "fa2"], ids="-".join)
def test_blackwell(launch):
    found = faults(
        ask(launch, "sm_100", None, [(64, "float16"), (128, "float16")]), SHARED_BYTES["sm_100"]
    )
    assert not found, "\n".join(found)


def test_a_row_that_spills_is_found():
    """One warp cannot hold 64 x 256 sums in its registers. If `spills` were blind, this would fail."""
    problem = Problem(1, 1, 512, 512, 256, "float16")
    too_large = Request("fa2", problem, "sm_80", tiles=Tiles(64, 64, 1, 4))
    found = faults([too_large], SAFE_SHARED_BYTES)
    assert "spills" in found[0]
    assert "shared memory" in found[1]
    (kernel,) = compile_for([too_large])[0]
    assert (kernel.kernel, kernel.constants["HEAD_DIM"]) == ("forward_kernel", 256)
    assert (kernel.constants["BLOCK_K"], kernel.warps, kernel.stages) == (64, 1, 4)
    assert kernel.instructions["HMMA"] > 0


def test_what_does_not_compile_is_an_answer():
    """Tiles that are no power of two: the compiler's complaint, and the next request is still answered."""
    odd, plain = (
        Request("fa2", Problem(1, 1, 64, 64, 16), "sm_80", tiles=Tiles(rows, 32, 4, 1))
        for rows in (48, 64)
    )
    complaint, kernels = compile_for([odd, plain])
    assert isinstance(complaint, str)
    assert "power of 2" in complaint
    assert len(kernels) == 1
