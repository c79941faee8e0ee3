"""What the compiler makes of our kernels, for a GPU that need not be here.

`compile_for` calls the launchers themselves, in a process of its own in which Triton compiles and launches
nothing, so what is examined is what would run: the same tiles, masks and constants.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels import tile_sizes
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.registry import IMPLEMENTATIONS, load
from kernels.sass import written_in_flight
from kernels.tile_sizes import Tiles
from kernels.triton_mode import environment_that_compiles

SHARED_BYTES = {"sm_80": 166_912, "sm_86": 101_376, "sm_90": 232_448, "sm_100": 232_448}
"""Shared memory that one program may have; CUDA C++ Programming Guide, table of technical specifications."""

START = "import triton; from kernels.compiled import work; work()"
"""The worker imports Triton first, so that `import kernels` does not choose the interpreter for it."""


@dataclass(frozen=True)
class Request:
    """One launch to compile.

    `what` is "forward", "backward", "backward+lse" (with a gradient of the log-sum-exp too), or of
    "recompute" the name of what is rebuilt: "rows", "columns", "product", "gradient_rows", and for sm_90
    "product_hopper" and "product_hopper_weighted".
    `row` names the row of the tables, "any" or an architecture; None takes what a launch there would.
    `tiles` is tried in place of every row.
    """

    implementation: str  # a name of the registry, or "recompute"
    problem: Problem
    architecture: str = "sm_90"
    what: str = "forward"
    row: str | None = None
    tiles: Tiles | None = None

    def __str__(self) -> str:
        row = self.tiles or f"row {self.row or self.architecture}"
        return f"{self.implementation} {self.what} {self.problem} on {self.architecture}, {row}"


@dataclass(frozen=True)
class Compiled:
    """One kernel as the GPU would run it."""

    kernel: str
    constants: dict[str, Any]  # its constexprs
    warps: int
    stages: int
    registers: int  # of one thread
    stack_bytes: int  # of one thread, in local memory: what did not fit in registers
    shared_bytes: int  # of one program
    instructions: dict[
        str, int
    ]  # opcode without its modifiers ("HGMMA", "MUFU") -> how often it stands there
    written_in_flight: list[str]  # what writes to registers of a product before it is waited for

    @property
    def spills(self) -> bool:
        """Registers ran out and the rest went to memory."""
        return bool(
            self.stack_bytes or self.instructions.get("STL") or self.instructions.get("LDL")
        )


def compile_for(requests: Sequence[Request]) -> list[list[Compiled] | str]:
    """For each request the kernels that it would launch, in order, or the compiler's complaint.

    Takes a second or so for a kernel that Triton has not compiled before. Needs no GPU and touches none.

    Raises:
        RuntimeError: the worker process ended early; its last line says why.
    """
    done = subprocess.run(
        [sys.executable, "-c", START],
        input=json.dumps([asdict(request) for request in requests]),
        capture_output=True,
        text=True,
        check=False,
        env=environment_that_compiles(),
        cwd=Path(__file__).parents[1],
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or "The compiling process died.").splitlines()[-1])
    return [
        a if isinstance(a, str) else [Compiled(**k) for k in a] for a in json.loads(done.stdout)
    ]


# --- in the worker process --------------------------------------------------------------------------


class AbsentGPU:
    """As much of Triton's driver as compiling asks for."""

    def __init__(self, architecture: str) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)

    def get_current_device(self) -> str:
        return f"absent sm_{self.target.arch}"  # Triton keeps what it compiled by device

    def get_current_stream(self, device: str) -> int:
        return 0

    def get_current_target(self):
        return self.target


def work() -> None:
    """Answer the requests on standard input on standard output, both JSON."""
    from triton.runtime.jit import JITFunction

    kernels, compile_or_launch = [], JITFunction.run

    def only_compile(kernel, *args, grid, warmup, **options):
        kernels.append(compile_or_launch(kernel, *args, grid=grid, warmup=True, **options))

    JITFunction.run = only_compile  # pyright: ignore[reportAttributeAccessIssue]
    answers = []
    for asked in json.load(sys.stdin):
        tiles = Tiles(**asked["tiles"]) if asked["tiles"] else None
        request = Request(**asked | {"problem": Problem(**asked["problem"]), "tiles": tiles})
        kernels.clear()
        try:
            launch(request)
            answers.append([asdict(examined(kernel)) for kernel in kernels])
        except Exception as fault:  # whatever a compiler raises is the answer
            answers.append(complaint(fault))
    json.dump(answers, sys.stdout)


def complaint(fault: BaseException) -> str:
    """What went wrong, from the place in our code down to the first cause."""
    text = f"{type(fault).__name__}: {fault}"
    cause = fault.__cause__ or fault.__context__
    return text if cause is None else f"{text}\n{complaint(cause)}"


def launch(request: Request) -> None:
    """Call the launcher, on tensors without values, as if on that GPU."""
    from triton.runtime import driver

    driver.set_active(AbsentGPU(request.architecture))  # pyright: ignore[reportArgumentType]
    choose_row(request)
    problem = request.problem
    dtype, kv_heads = getattr(torch, problem.dtype), problem.kv_heads or problem.heads
    q = torch.empty(problem.batch, problem.heads, problem.queries, problem.head_dim, dtype=dtype)
    k = torch.empty(problem.batch, kv_heads, problem.keys, problem.head_dim, dtype=dtype)
    log_sum_exp, scale = torch.empty(q.shape[:3]), problem.head_dim**-0.5
    if request.implementation == "recompute":
        rebuild(request.what, q, k, log_sum_exp, scale, problem.causal)
        return
    chosen = load(request.implementation)
    if request.what == "forward":
        (chosen.forward_keeping or chosen.forward)(q, k, k, scale, problem.causal)
        return
    assert chosen.backward is not None, f"{chosen.name} has no backward"
    kept = chosen.empty_kept(q, k) if chosen.empty_kept else q.new_empty(0)
    saved = Saved(q, k, k, torch.empty_like(q), log_sum_exp, kept, scale, problem.causal)
    grad_log_sum_exp = torch.empty_like(log_sum_exp) if request.what == "backward+lse" else None
    chosen.backward(saved, torch.empty_like(q), grad_log_sum_exp)


def rebuild(what: str, q: Tensor, k: Tensor, lse: Tensor, scale: float, causal: bool) -> None:
    """Launch one of the kernels that rebuild parts of P and dP."""
    from kernels.recompute import in_triton

    if what == "product":
        in_triton.product(lse, q, k, lse, scale, causal)  # weighted: that takes most
    elif what.startswith("product_hopper"):
        from kernels.recompute import products_hopper

        weights = lse if what.endswith("weighted") else None
        products_hopper.product(weights, q, k, lse, scale)
    elif what == "gradient_rows":
        in_triton.gradient_rows(q, k, torch.arange(20), causal)
    else:
        getattr(in_triton, what)(q, k, lse, torch.arange(20), scale, causal)


def choose_row(request: Request) -> None:
    """Make `tile_sizes.pick` find the row, or the tiles, that were asked for."""
    if request.tiles is None:
        tile_sizes.architecture = lambda device: request.row or request.architecture
        return
    tile_sizes.architecture = lambda device: "asked"
    package = IMPLEMENTATIONS.get(request.implementation, "kernels.recompute")
    tables = importlib.import_module(f"{package}.tile_sizes")
    for table in vars(tables).values():
        if isinstance(table, dict):
            table |= {("asked", *key[1:]): request.tiles for key in list(table) if "any" in key}


def examined(kernel) -> Compiled:
    """What Triton says of the kernel, and what stands in the machine code."""
    listing = disassembled(kernel.asm["cubin"])
    usage = re.search(r"REG:(\d+) STACK:(\d+)", listing)
    assert usage is not None, "cuobjdump says nothing of registers"
    # A line of code: /*0120*/  @!P0 HGMMA.64x64x16.F32 R24, ... ;
    opcodes = re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9]*)", listing)
    constants = {
        kernel.src.fn.arg_names[place[0]]: getattr(value, "value", value)
        for place, value in kernel.src.constants.items()
        if kernel.src.fn.arg_names[place[0]].isupper()
    }
    return Compiled(
        kernel=kernel.src.fn.__name__,
        constants=constants,
        warps=kernel.metadata.num_warps,
        stages=kernel.metadata.num_stages,
        registers=int(usage[1]),
        stack_bytes=int(usage[2]),
        shared_bytes=kernel.metadata.shared,
        instructions=dict(Counter(opcodes)),
        written_in_flight=written_in_flight(listing),
    )


def disassembled(cubin: bytes) -> str:
    """The listing of the cuobjdump that comes with Triton."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-sass", "--dump-resource-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
