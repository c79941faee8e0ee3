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

REBUILT = ("rows", "columns", "product", "gradient_rows")
LAUNCHES = (
    [(name, "forward") for name in OURS]
    + [(name, "backward") for name in OURS if name in WITH_BACKWARD]
    + [(name, "backward+lse") for name in OURS if name in WITH_BACKWARD]
    + [("recompute", what) for what in REBUILT]
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
    ),
]


HALF = [(dim, "float16") for dim in (16, 64, 128, 256, 59)]
"""(head_dim, dtype). bfloat16 differs from float16 in the opcode's suffix only. 59 is no power of two."""

UNEVEN = [(dim, "float16") for dim in (24, 59, 120, 200)]
"""Widths that fill no tile. With a tile larger at 40 and 59, fa1's backward pass spilled 608 bytes on an H200,
and the compiler read a register of a wgmma's address before it was written: an illegal memory access."""

FULL = [(64, "float32")]
"""One width: where a product is unrolled into multiply-adds, the compiler takes up to a minute."""

AT_ONCE = 6
"""Requests of one worker: few enough that no core waits long for the last of them."""

ALLOWED_SPILLS: dict[tuple[str, str, str, int], tuple[int, str]] = {
    ("fa2", "keys_kernel", "sm_90", 128): (
        8,
        "(32, 64, 4, 3) is the fastest measured on an H200; its two sums alone take 128 registers",
    ),
    ("fa2", "keys_kernel", "sm_90", 64): (
        16,
        "Triton 3.6 only, at a causal mask and a length that is no multiple of 16",
    ),
    **{
        ("fa2", kernel, "sm_90", 111): (
            size,
            "loads of two bytes each, whose addresses fill the registers; clean under a memory checker",
        )
        for kernel, size in [
            ("forward_kernel", 104),
            ("delta_kernel", 24),
            ("keys_kernel", 200),
            ("queries_kernel", 64),
        ]
    },
    ("fa1", "backward_kernel", "sm_80", 256): (
        1416,
        "no smaller tile is left; fa1 is here to be compared with, and an A100 runs it, slowly",
    ),
}
"""(implementation, kernel, architecture, head_dim) of a 16-bit launch -> bytes of a thread, and why."""


OLDER = [("fa2", "backward", 256), ("fa1", "forward", 256), ("fa1", "backward", 256)]
"""(implementation, launch, head_dim) without wgmma: their tiles have under 64 rows. With 64, fa2 spilled."""


def ask(architecture: str, row: str | None, sizes, launches=LAUNCHES, keys=1000) -> list[Request]:
    """A causal mask needs all that a full one needs, and more."""
    return [
        Request(name, Problem(1, 4, keys, keys, dim, dtype, True), architecture, what, row)
        for name, what in launches
        for dim, dtype in sizes
    ]


PLAIN = [launch for launch in LAUNCHES if launch[1] != "backward+lse"]
WITH_LSE = [launch for launch in LAUNCHES if launch[1] == "backward+lse"]
FLASH = [launch for launch in PLAIN if launch[0] == "fa2"]
OTHERS = [launch for launch in PLAIN if launch[0] != "fa2"]

# Another gradient only adds a load: one width each.
ASKED = {
    "sm_80": [
        *ask("sm_80", "any", FULL, PLAIN),
        *ask("sm_80", "any", HALF, FLASH),
        *ask("sm_80", "any", HALF[1:], OTHERS),
        *ask("sm_80", "any", HALF[:1], WITH_LSE),
    ],
    "sm_90": [
        *ask("sm_90", None, FULL, FLASH),
        *ask("sm_90", None, HALF, FLASH),
        *ask("sm_90", None, HALF[1:3], OTHERS),
        *ask("sm_90", None, HALF[1:3], FLASH, keys=1024),
        *ask("sm_90", None, HALF[1:2], WITH_LSE),
        *ask("sm_90", None, [(111, "float16")], FLASH),
    ],
    "sm_100": ask("sm_100", None, HALF[1:3], FLASH),
}


@cache
def compiled(architecture: str) -> dict[Request, list[Compiled] | str]:
    """All that is asked of an architecture, at once, in as many processes as there are cores, up to 8."""
    requests, count = ASKED[architecture], min(os.cpu_count() or 1, 8)
    shares = [requests[i : i + AT_ONCE] for i in range(0, len(requests), AT_ONCE)]
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


def allowed_spill(request: Request, kernel: Compiled) -> int:
    """Bytes of a thread; -1 where none are, so that a spill of no known size is a fault too."""
    problem = request.problem
    place = (request.implementation, kernel.kernel, request.architecture, problem.head_dim)
    if request.tiles or problem.dtype == "float32" or place not in ALLOWED_SPILLS:
        return -1
    return ALLOWED_SPILLS[place][0]


def faults(request: Request, kernels: list[Compiled], shared_bytes: int) -> Iterator[str]:
    """What is wrong with any of the kernels, one sentence each."""
    for kernel in kernels:
        where = f"{request}: {kernel.kernel} with {kernel.constants}, {kernel.warps} warps"
        if kernel.spills and kernel.stack_bytes > allowed_spill(request, kernel):
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


def test_fa1_does_not_spill_where_it_once_read_out_of_bounds():
    requests = ask("sm_90", None, UNEVEN, [("fa1", "backward+lse")])
    for request, kernels in zip(requests, compile_for(requests), strict=True):
        assert not isinstance(kernels, str), f"{request}: {kernels}"
        assert kernels, request
        assert not list(faults(request, kernels, SHARED_BYTES["sm_90"]))


@pytest.mark.parametrize("launch", [i for i in LAUNCHES if i[0] != "recompute"], ids="-".join)
def test_hopper_multiplies_with_wgmma(launch):
    """The older instruction reaches about half of an H100's rate. A whole warpgroup takes 64 rows at least."""
    for request, kernels in of_launch("sm_90", launch):
        if request.problem.dtype == "float32" or (*launch, request.problem.head_dim) in OLDER:
            continue
        assert any(kernel.instructions.get("HGMMA") for kernel in kernels), request
        older = [kernel for kernel in kernels if kernel.instructions.get("HMMA")]
        assert not older, f"{request}: " + ", ".join(f"{k.kernel} {k.constants}" for k in older)


@pytest.mark.parametrize("launch", FLASH, ids="-".join)
def test_blackwell(launch):
    answers = compiled("sm_100").values()
    if all(isinstance(answer, str) for answer in answers):
        pytest.skip(f"the installed Triton cannot: {next(iter(answers))}")
    found = [f for one in of_launch("sm_100", launch) for f in faults(*one, SHARED_BYTES["sm_100"])]
    assert not found, "\n".join(found)


def test_what_is_tuned_spills_little():
    for place, (size, why) in ALLOWED_SPILLS.items():
        assert why
        assert size <= 32 or place[0] == "fa1" or place[3] == 111, place


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
