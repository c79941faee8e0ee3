# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
"""The kernels of some problems, launched once each under a profiler: what `measured` lets `ncu` watch.

    ncu ... python -m kernels.traffic.replay JOB.json

The job, a file or standard input, is `{"requests": [[problem, implementation, direction], ...]}`. For the
calibration and for each request a line of JSON says what happened; a marker kernel stands before each in the
profiler's list. Everything is compiled and warmed outside the profiler's sight.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.bench.contestants import WORKS, Inputs, make_inputs
from kernels.bench.timing import Work
from kernels.problem import Problem
from kernels.registry import load
from kernels.tiles import tl, triton

WARM_UPS = 2
GIB = 2**30
BLOCK = 4096  # words that a program copies
WASHES = 4  # how many times the L2's size pushes out what it held before

Line = dict[str, Any]


@triton.jit
def flashlens_marker(ptr):
    """Does next to nothing; its name says where a request begins."""
    tl.store(ptr, 1)


@triton.jit
def flashlens_copy(source_ptr, target_ptr, blocks, lag, BLOCK: tl.constexpr):
    """Block by block from source to target, both `blocks` long, `lag` blocks further back.

    So the target's first blocks are filled with zeros, and the source's last ones only read. Reading pushes what
    was written out of L2; a plain copy would leave up to L2's size of it there.
    """
    block = tl.program_id(0).to(tl.int64)
    words = tl.zeros([BLOCK], tl.int32)
    if block >= lag:
        words = tl.load(source_ptr + (block - lag) * BLOCK + tl.arange(0, BLOCK))
    if block < blocks:
        tl.store(target_ptr + block * BLOCK + tl.arange(0, BLOCK), words)
    elif tl.max(words, 0) != 0:  # never: but the compiler must keep the load
        tl.store(target_ptr, 1)


# --- the calibration --------------------------------------------------------------------------------


class Calibration:
    """A copy that reads and writes so many bytes: 1 GiB, or an eighth of what is free on a small GPU."""

    def __init__(self, device: torch.device) -> None:
        free, l2 = GIB, 4 * BLOCK
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            l2 = torch.cuda.get_device_properties(device).L2_cache_size
        self.blocks = max(2, min(GIB, free // 8) // (4 * BLOCK))
        self.lag = min(-(-WASHES * l2 // (4 * BLOCK)), self.blocks // 2)
        words = self.blocks * BLOCK
        self.source = torch.zeros(words, dtype=torch.int32, device=device)
        self.target = torch.empty_like(self.source)
        self.wash = torch.empty(self.lag * BLOCK, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        flashlens_copy[(self.blocks + self.lag,)](
            self.source, self.target, self.blocks, self.lag, BLOCK=BLOCK
        )

    def warm_up(self) -> None:
        """Compile; then leave nothing of source and target in L2, neither to be found nor to be written."""
        self()
        self.wash.max()

    @property
    def expected_bytes(self) -> int:
        """So many are read, and so many written."""
        return self.source.nbytes


# --- the requests -----------------------------------------------------------------------------------


def as_in_the_model(inputs: Inputs) -> Inputs:
    """The same numbers where `vit.model` has them: tokens before heads, q, k and v of one projection together."""
    problem, (q, k, v) = inputs.problem, inputs.forward[:3]
    if q.shape == k.shape:
        together = torch.stack([q, k, v]).permute(1, 3, 0, 2, 4).contiguous()
        q, k, v = together.permute(2, 0, 3, 1, 4)  # of [batch, tokens, 3, heads, head_dim]
    else:
        q, k, v = (tokens_first(t) for t in (q, k, v))
    return Inputs(problem, q, k, v, tokens_first(inputs.grad_output), inputs.scale)


def tokens_first(tensor: Tensor) -> Tensor:
    """The same [batch, heads, tokens, head_dim], laid out as [batch, tokens, heads, head_dim]."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def reason_against(
    problem: Problem, implementation: str, direction: str, device: torch.device
) -> str | None:
    """Why this cannot be run, in one sentence, or None."""
    if problem.empty:
        return "There is nothing to compute in this problem, so nothing moves."
    chosen = load(implementation)
    reason = chosen.supports(problem, device)
    if reason is None and direction != "forward":
        reason = chosen.reason_against_backward(problem, device)
    return reason


def prepared(problem: Problem, implementation: str, direction: str, device: torch.device) -> Work:
    """The work of one request, compiled and warm."""
    inputs = as_in_the_model(make_inputs(problem, device))
    work = WORKS[direction](load(implementation), inputs)
    for _ in range(WARM_UPS):
        work()
    return work


# --- one after another ------------------------------------------------------------------------------


def answers(job: Line, device: torch.device) -> Iterator[Line]:
    """A line for the calibration, one for each request, and the last one, which says that all went its way."""
    marker = Marker(device)
    calibration = Calibration(device)
    calibration.warm_up()
    marker.watch(calibration)
    yield {"calibration": calibration.expected_bytes, "marker": 0}
    del calibration
    tidy(device)
    broken_by = None
    for number, (values, implementation, direction) in enumerate(job["requests"]):
        if broken_by is not None:
            sentence = f"{broken_by} broke the GPU's context before this could run; leave it out."
            yield {"request": number, "cause": "failed", "sentence": sentence}
            continue
        problem = Problem(**values)
        yield {"request": number} | answer(marker, problem, implementation, direction)
        tidy(device)
        broken_by = implementation if lost(device) else None
    yield {"done": True}


def answer(marker: Marker, problem: Problem, implementation: str, direction: str) -> Line:
    """Where the kernels of this request stand, or why they do not."""
    try:
        reason = reason_against(problem, implementation, direction, marker.device)
        if reason is not None:
            return {"cause": "refused", "sentence": reason}
        marker.watch(prepared(problem, implementation, direction, marker.device))
    except torch.OutOfMemoryError:
        sentence = (
            f"{implementation} ran out of GPU memory; choose fewer tokens, or a smaller batch."
        )
        return {"cause": "out of memory", "sentence": sentence}
    except Exception as fault:  # other people's kernels may raise anything
        said = (str(fault).strip().splitlines() or ["it says nothing"])[0][:200]
        sentence = f"{implementation} failed before it was measured: {type(fault).__name__}: {said}"
        return {"cause": "failed", "sentence": sentence}
    return {"marker": marker.launched - 1}


class Marker:
    """Lets the profiler see one piece of work after another, each with the marker kernel before it."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.launched = device, 0
        self.flag = torch.zeros(1, dtype=torch.int32, device=device)
        flashlens_marker[(1,)](self.flag)

    def watch(self, work: Work) -> None:
        with seen(self.device):
            flashlens_marker[(1,)](self.flag)
            self.launched += 1
            work()


@contextmanager
def seen(device: torch.device) -> Iterator[None]:
    """The profiler records what is launched in here; on a CPU there is none."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()


def tidy(device: torch.device) -> None:
    """Give back what the last request took."""
    gc.collect()
    if device.type == "cuda" and not lost(device):
        torch.cuda.empty_cache()


def lost(device: torch.device) -> bool:
    """True after a kernel that read where it may not: this process can use the GPU no more."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def main(arguments: Sequence[str]) -> None:
    import torch._functorch.config

    # Flex attention throws away what a second backward pass needs, unless it is told not to.
    torch._functorch.config.donated_buffer = False
    job = json.loads(Path(arguments[0]).read_text() if arguments else sys.stdin.read())
    for line in answers(job, torch.device("cuda")):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
