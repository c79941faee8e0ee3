"""What the compiler makes of the FP8 kernel for Hopper: read in the machine code, without a GPU.

The inner loop is found as the body of the backward branch that holds both products.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.fp8.quantized import HEAD_DIMS
from kernels.triton_mode import environment_that_compiles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
    ),
]

START = "import triton; from tests.kernels.test_fp8_compiled import work; work()"
MULTIPROCESSORS = 132
SHARED_BYTES = 232_448


def exponentials(in_bytes: bool) -> int:
    """Of a thread for each tile: its scores where they are not made in bytes, and the factors of its two rows."""
    return 2 if in_bytes else 66


def work() -> None:
    """In a process of its own: compile every kernel for a Hopper that is not here; listings as JSON."""
    from contextlib import nullcontext

    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from kernels.compiled import AbsentGPU, disassembled
    from kernels.fp8 import forward, to_e4m3
    from kernels.fp8.reference import quantize_in_torch

    driver.set_active(AbsentGPU("sm_90"))  # pyright: ignore[reportArgumentType]
    forward.multiprocessors = lambda device: MULTIPROCESSORS
    forward.on_device_of = lambda tensor: nullcontext()
    run, found = JITFunction.run, {}

    def only_compile(kernel, *args, grid, warmup, **options):
        return run(kernel, *args, grid=grid, warmup=True, **options)

    def keep(kernel, *args, **options):
        compiled: Any = only_compile(kernel, *args, **options)
        in_bytes = forward.SHAPES[head_dim].BYTES
        found[name] = [disassembled(compiled.asm["cubin"]), compiled.metadata.shared, in_bytes]
        return compiled

    forward.forward_kernel.run = keep.__get__(forward.forward_kernel)
    JITFunction.run = only_compile  # pyright: ignore[reportAttributeAccessIssue]
    for head_dim in HEAD_DIMS:
        for causal in (False, True):
            name = f"{head_dim} {causal}"
            q = torch.zeros(1, 1, 300, head_dim, dtype=torch.bfloat16)
            forward.launch_forward(quantize_in_torch(q, q, q), 0.1, causal, torch.bfloat16)
    to_e4m3.values_kernel.run = keep.__get__(to_e4m3.values_kernel)
    head_dim, nothing = 128, torch.zeros(1, 128)
    for tokens in (1, 17):
        name = f"values of {tokens}"
        v = torch.zeros(1, 1, tokens, head_dim, dtype=torch.bfloat16)
        to_e4m3.values_quantized(v, nothing, nothing)
    json.dump(found, sys.stdout)


@cache
def listings() -> dict[str, tuple[str, int, bool]]:
    done = subprocess.run(
        [sys.executable, "-c", START],
        capture_output=True,
        text=True,
        check=False,
        env=environment_that_compiles(),
        cwd=Path(__file__).parents[2],
    )
    assert not done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout)


def code(listing: str) -> list[tuple[int, str]]:
    """Address and instruction. The predicate is left out, and a branch without one: nothing loops by it."""
    lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(@!?U?P\d+ )?([A-Z].*?) ;", listing)
    return [
        (int(address, 16), text)
        for address, predicate, text in lines
        if predicate or not text.startswith("BRA")
    ]


def inner_loops(listing: str, in_bytes: bool) -> list[list[str]]:
    """The loops over key tiles, one for each consumer and kind of tile: both products and one tile's exponentials.

    Waiting at a barrier is a backward branch too, round less than a tile; the loop over pieces goes round several.
    """
    lines = code(listing)
    place = {address: number for number, (address, _) in enumerate(lines)}
    bodies = []
    for number, (address, text) in enumerate(lines):
        back = re.match(r"BRA (?:\S+, )?(0x[0-9a-f]+)", text)
        if not back or int(back[1], 16) not in place or int(back[1], 16) >= address:
            continue
        body = [t for _, t in lines[place[int(back[1], 16)] : number + 1]]
        found = sum(t.startswith("MUFU.EX2") for t in body)
        products = [t for t in body if t.startswith("QGMMA")]
        if found == exponentials(in_bytes) and len(products) > 4:
            bodies.append(body)
    return bodies


KERNELS = [(head_dim, causal) for head_dim in HEAD_DIMS for causal in (False, True)]


@pytest.fixture(params=KERNELS, ids=lambda p: f"{p[0]}-{'causal' if p[1] else 'full'}")
def loops(request) -> list[list[str]]:
    """Of both or three consumers; causal, those over tiles that are hidden in part too."""
    head_dim, causal = request.param
    text, shared_bytes, in_bytes = listings()[f"{head_dim} {causal}"]
    assert shared_bytes <= SHARED_BYTES
    assert "QGMMA" in text
    assert "HGMMA" not in text
    found = inner_loops(text, in_bytes)
    assert len(found) >= 2
    if causal and in_bytes:
        hidden = inner_loops(text, False)
        assert len(hidden) >= 2
        found += hidden
    return found


def made_in_bytes(body: list[str]) -> bool:
    return sum(t.startswith("MUFU.EX2") for t in body) == exponentials(True)


def test_nothing_spills_in_a_loop(loops):
    for body in loops:
        assert not [t for t in body if t.startswith(("STL", "LDL"))]


def test_weights_stay_where_they_are(loops):
    """Four shuffles reduce the maxima of two rows; nothing else crosses lanes, and no byte is picked out.

    Made in bytes, two scores go into a register and then four bytes; the scale and the start of two rows besides.
    """
    for body in loops:
        assert sum(t.startswith("SHFL") for t in body) == 4
        assert not [t for t in body if t.startswith(("STS", "LDS", "STSM"))]
        packed, picked = (sum(t.startswith(name) for t in body) for name in ("F2FP", "PRMT"))
        if made_in_bytes(body):
            assert packed == 32 + 3
            assert picked <= 16 + 1
        else:
            assert packed == 32
            assert picked == 0


def test_both_products_are_under_way_at_once(loops):
    """No wait between the first product's beginning and the last one's."""
    for body in loops:
        products = [n for n, t in enumerate(body) if t.startswith("QGMMA")]
        waits = [n for n, t in enumerate(body) if t.startswith("WARPGROUP.DEPBAR")]
        assert not [n for n in waits if products[0] < n < products[-1]]
        assert len(waits) == 2


def test_no_product_reads_a_register_that_changes(loops):
    """P is read from registers while P V runs; an old ptxas reuses them too early (triton#9433)."""
    for body in loops:
        read, checked = set(), 0
        for text in body:
            operands = re.match(r"QGMMA\S* R(\d+), R(\d+), gdesc", text)
            if operands:
                first = int(operands[2])
                read |= set(range(first, first + 4))
                checked += 1
            elif text.startswith("WARPGROUP.DEPBAR.LE gsb0, 0x0"):
                read.clear()
            else:
                written = re.match(r"(?!ST|RED|BAR|SYNCS|BRA)\S+ R(\d+)\b", text)
                assert not (written and int(written[1]) in read), text
        assert checked == 4


def test_one_token_runs_the_code_of_any_other_number():
    """With one token compiled in, ptxas of CUDA 12.8 left half of a word of equal e4m3 numbers unwritten: NaN, at times."""
    one, many = listings()["values of 1"], listings()["values of 17"]
    assert "F2FP.SATFINITE.E4M3" in one[0]
    assert one == many
