"""The largest that a process of its own gets while it makes one call, on a machine without a GPU.

A CPU has no allocator that keeps a peak, but the system keeps one for each process. So each call gets a
fresh process, forked from one that has torch and the kernels ready: what it grows by is what the call took.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import torch

from kernels.bench.contestants import WORKS, make_inputs
from kernels.bench.forecast import needed_bytes
from kernels.memory import available_bytes, in_words
from kernels.problem import Problem
from kernels.registry import load

PRELOADED = ["torch", "kernels.bench.peak", "kernels.eager", "kernels.torch_cpu_flash"]
WARM_UP_TOKENS = 192
"""A call of this many tokens starts torch's threads and reads its libraries, which is not this call's memory."""


class NoPeak(RuntimeError):
    """Why there is no figure, in one sentence."""


def measured_peak(
    problem: Problem, implementation: str, direction: str = "forward", timeout_s: float = 120.0
) -> int:
    """Bytes by which a fresh process grew at its largest, beyond its size just before the call.

    Only memory that was written counts. The process gets no more than what is free now, and where Linux
    runs out of memory all the same, it is the first to go.

    Raises:
        NoPeak: it did not fit, took too long, or died.
    """
    # Windows has no fork, and on macOS the libraries below torch do not survive one: there each process
    # loads torch itself.
    if sys.platform == "linux":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
    else:
        context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(
        target=answer,
        args=(theirs, problem, implementation, direction, available_bytes(torch.device("cpu"))),
        daemon=True,
    )
    child.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(timeout_s) else None
    except EOFError:
        child.join()
        raise NoPeak(why_it_died(child.exitcode, problem, implementation, direction)) from None
    finally:
        child.kill()
        child.join()
        ours.close()
    if found is None:
        raise NoPeak(f"{implementation} took longer than {timeout_s:.0f} s and was stopped.")
    if isinstance(found, str):
        raise NoPeak(found)
    return found


def why_it_died(
    exit_code: int | None, problem: Problem, implementation: str, direction: str
) -> str:
    """The sentence for a process that ended without an answer."""
    if exit_code == -getattr(signal, "SIGKILL", 9):
        needed = in_words(needed_bytes(problem, implementation, direction))
        return (
            f"The system ended {implementation} while its memory was measured; it needs about "
            f"{needed}. Take fewer tokens, or close other programs."
        )
    how = f"signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"code {exit_code}"
    return f"{implementation} ended with {how} while its memory was measured; try another size."


# --- in the child -------------------------------------------------------------------------------------


def answer(
    connection: Connection, problem: Problem, implementation: str, direction: str, limit_bytes: int
) -> None:
    """Send the bytes, or a sentence."""
    end_with_parent()
    be_first_to_go()
    allow_no_more_than(limit_bytes)
    try:
        connection.send(growth(problem, implementation, direction))
    except (MemoryError, RuntimeError) as fault:
        connection.send(said(fault, problem, implementation, direction))


def growth(problem: Problem, implementation: str, direction: str) -> int:
    """What the call adds to this process at its largest."""
    chosen, device = load(implementation), torch.device("cpu")
    small = Problem(1, 2, WARM_UP_TOKENS, WARM_UP_TOKENS, problem.head_dim, problem.dtype)
    WORKS[direction](chosen, make_inputs(small, device))()
    work = WORKS[direction](chosen, make_inputs(problem, device))
    forgotten = forget_peak()
    before, largest_before = psutil.Process().memory_info().rss, peak_rss_bytes()
    result = work()
    after = peak_rss_bytes()
    del result
    if not forgotten and after == largest_before:
        least = in_words(max(0, after - before))
        raise RuntimeError(f"its peak is below {least}, which is all that this system can tell")
    return max(0, after - before)


def said(fault: Exception, problem: Problem, implementation: str, direction: str) -> str:
    """What went wrong, for the screen."""
    if isinstance(fault, MemoryError) or "allocate memory" in str(fault):
        needed = in_words(needed_bytes(problem, implementation, direction))
        return f"{implementation} ran out of memory: it needs {needed}. Take fewer tokens."
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return f"The memory of {implementation} is not known: {lines[0][:200]}."


def end_with_parent() -> None:
    """Nobody waits for the answer of a process whose parent has gone."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def be_first_to_go() -> None:
    """Linux, out of memory, ends the process with the highest score; elsewhere there is no such file."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def allow_no_more_than(more_bytes: int) -> None:
    """Memory beyond this raises an error here instead of driving the machine to its swap.

    Linux alone counts what RLIMIT_DATA should: macOS takes the number and ignores it, Windows has none.
    """
    if sys.platform != "linux":
        return
    import resource

    limit = status_bytes("VmData") + max(0, more_bytes)
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def forget_peak() -> bool:
    """Linux can start its record of the peak again; False where that is not to be had."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int:
    """The largest that this process has been since `forget_peak`."""
    if sys.platform == "linux":
        return status_bytes("VmHWM")
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def status_bytes(name: str) -> int:
    """A line of /proc/self/status, such as VmHWM."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0
