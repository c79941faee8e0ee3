"""What the compiler makes of every kernel for GPUs that are not here: it fits, and nothing spills.

Nothing runs; a machine without a GPU is enough. The launchers themselves are called, so what is compiled is
what would run.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from kernels import Problem
from kernels.compiled import SHARED_BYTES, Compiled, Request, compile_for
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


SAFE = [(64, "float16"), (128, "float16"), (64, "float32")]
HOPPER = [(64, "bfloat16"), (128, "float16")]
MORE_FOR_FA2 = [(256, "float16"), (59, "float16"), (128, "float32")]
"""(head_dim, dtype). bfloat16 differs from float16 in the opcode's suffix only."""


def ask(architecture: str, row: str | None, sizes, more=(), launches=LAUNCHES) -> list[Request]:
    """What every launch is asked; a causal mask needs all that a full one needs, and more."""
    return [
        Request(name, Problem(1, 4, 1000, 1000, dim, dtype, True), architecture, what, row)
        for name, what in launches
        for dim, dtype in [*sizes, *(more if name == "fa2" else ())]
    ]


ASKED = {
    "sm_80": ask("sm_80", "any", SAFE, [(256, "float16")]),
    "sm_90": ask("sm_90", None, HOPPER, MORE_FOR_FA2),
    "sm_100": ask("sm_100", None, SAFE[:2], launches=[i for i in LAUNCHES if i[0] == "fa2"]),
}


@cache
def compiled(architecture: str) -> dict[Request, list[Compiled] | str]:
    """All that is asked of an architecture, at once, in as many processes as there are cores."""
    requests, count = ASKED[architecture], os.cpu_count() or 1
    shares = [requests[i::count] for i in range(count) if requests[i::count]]
    with ThreadPoolExecutor(count) as threads:
        answers = threads.map(compile_for, shares)
        pairs = [zip(*pair, strict=True) for pair in zip(shares, answers, strict=True)]
    return {request: answer for share in pairs for request, answer in share}


def of_launch(
    architecture: str, launch: tuple[str, str]
) -> Iterator[tuple[Request, list[Compiled]]]:
    """The kernels of one launch, at each size."""
    for request, kernels in compiled(architecture).items():
        if (request.implementation, request.what) != launch:
            continue
        assert not isinstance(kernels, str), f"{request}: {kernels}"
        assert kernels, f"{request}: nothing was launched"
        yield request, kernels


def faults(request: Request, kernels: list[Compiled], shared_bytes: int) -> Iterator[str]:
    """What is wrong with any of the kernels, one sentence each."""
    for kernel in kernels:
        where = f"{request}: {kernel.kernel} with {kernel.constants}, {kernel.warps} warps"
        if kernel.spills:
            yield f"{where} spills {kernel.stack_bytes} bytes"
        if kernel.shared_bytes > shared_bytes:
            yield f"{where} wants {kernel.shared_bytes} bytes of shared memory"


@pytest.mark.parametrize("launch", LAUNCHES, ids="-".join)
def test_safe_rows_fit_every_gpu(launch):
    """In the smallest shared memory, and in the registers of an A100."""
    found = [f for one in of_launch("sm_80", launch) for f in faults(*one, SAFE_SHARED_BYTES)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("launch", LAUNCHES, ids="-".join)
def test_hopper(launch):
    """What a launch on an H100 or H200 takes: tuned rows where there are some, safe ones elsewhere."""
    found = [f for one in of_launch("sm_90", launch) for f in faults(*one, SHARED_BYTES["sm_90"])]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("launch", [i for i in LAUNCHES if i[0] in OURS], ids="-".join)
def test_hopper_multiplies_with_wgmma(launch):
    """The older instruction reaches about half of an H100's rate. A whole warpgroup takes 64 rows at least."""
    for request, kernels in of_launch("sm_90", launch):
        if request.problem.dtype != "float32":
            assert any(kernel.instructions.get("HGMMA") for kernel in kernels), request
            older = [kernel for kernel in kernels if kernel.instructions.get("HMMA")]
            assert not older, f"{request}: " + ", ".join(f"{k.kernel} {k.constants}" for k in older)


@pytest.mark.parametrize("launch", [i for i in LAUNCHES if i[0] == "fa2"], ids="-".join)
def test_blackwell(launch):
    answers = compiled("sm_100").values()
    if all(isinstance(answer, str) for answer in answers):
        pytest.skip(f"the installed Triton cannot: {next(iter(answers))}")
    found = [f for one in of_launch("sm_100", launch) for f in faults(*one, SHARED_BYTES["sm_100"])]
    assert not found, "\n".join(found)


def test_a_row_that_spills_is_found():
    """One warp cannot hold 64 x 256 sums in its registers. If `spills` were blind, this would fail."""
    problem = Problem(1, 1, 512, 512, 256, "float16")
    too_large = Request("fa2", problem, "sm_80", tiles=Tiles(64, 64, 1, 4))
    (kernels,) = compile_for([too_large])
    assert not isinstance(kernels, str)
    spilled, shared = faults(too_large, kernels, SAFE_SHARED_BYTES)
    assert "spills" in spilled
    assert "shared memory" in shared
    (kernel,) = kernels
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
    assert "power of 2" in complaint, complaint
    assert len(kernels) == 1
