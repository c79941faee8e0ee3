"""Bytes that our Triton kernels ask for, counted at their own loads and stores in Triton's interpreter."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import torch

from kernels.fa3.stand_in import STAND_IN
from kernels.implementation import Implementation, Saved
from kernels.problem import Problem
from kernels.registry import load
from kernels.tile_sizes import as_if_on
from kernels.traffic import pace
from kernels.traffic.formula import check, passes, this_gpu
from kernels.traffic.ledger import Direction, KernelTraffic, Traffic, TrafficError
from kernels.triton_mode import environment_that_interprets, interprets

MOST_COUNTED = 120.0
"""Seconds that one count may take, by forecast."""

WORKER = "kernels.traffic.count_worker"

ACROSS_HEADS = ("fa3",)
"""What cuts up the work of all heads together."""


def counted(
    problem: Problem,
    implementation: str,
    direction: Direction = "forward",
    gpu: str | None = None,
    *,
    in_worker: bool | None = None,
    timeout_s: float = 300.0,
    without_limit: bool = False,
) -> Traffic:
    """Run the real kernels of ours on one head and count what they ask memory for, launch by launch.

    What is run is one batch item and one head of keys with the queries that share it; the kernels treat all
    others alike, so their bytes are this times batch and heads of keys. fa3 cuts up the work of all heads together,
    so all of it is run, by its twin in plain Triton. bfloat16, which the interpreter
    computes wrongly, is counted in float16: no loop depends on a value, and the bytes are the same.

    Args:
        gpu: whose rows of the tile tables: "sm_90", "any", or None for this machine's.
        in_worker: count in a process of its own. None takes one where Triton compiles in this process; else
            the count runs here, and other threads' use of the interpreter waits for it.
        timeout_s: after which a worker is stopped.
        without_limit: count whatever it takes; see `MOST_COUNTED` and `counting_seconds`.

    Raises:
        TrafficError: it was not counted, in one sentence.
    """
    gpu = gpu or this_gpu()
    check(problem, implementation, direction, gpu)
    if problem.empty:
        return Traffic.of("counted", ())
    refuse(problem, implementation, direction, gpu, without_limit)
    dtype = "float16" if problem.dtype == "bfloat16" else problem.dtype
    asked, times = dataclasses.replace(problem, dtype=dtype), 1
    if implementation not in ACROSS_HEADS:
        asked = dataclasses.replace(asked, batch=1, heads=problem.group, kv_heads=1)
        times = problem.batch * (problem.kv_heads or problem.heads)
    if in_worker is None:
        in_worker = not interprets()
    if in_worker:
        launches = launches_in_worker(asked, implementation, direction, gpu, timeout_s)
    else:
        launches = launches_here(asked, implementation, direction, gpu)
    return Traffic.of(
        "counted",
        [KernelTraffic(x.kernel, x.bytes_read * times, x.bytes_written * times) for x in launches],
    )


def counting_seconds(
    problem: Problem, implementation: str, direction: Direction = "forward", gpu: str | None = None
) -> float:
    """About how long `counted` will take here, within a factor of three; for a line of progress."""
    gpu = gpu or this_gpu()
    check(problem, implementation, direction, gpu)
    begin = pace.SECONDS_TO_BEGIN if interprets() else pace.SECONDS_TO_START_A_WORKER
    if problem.empty:
        return 0.0
    return begin + pace.forecast_seconds(problem, implementation, direction, gpu)


def refuse(
    problem: Problem, implementation: str, direction: Direction, gpu: str, without_limit: bool
) -> None:
    """Raise the sentence that stands against counting, where a formula would do."""
    if importlib.util.find_spec("triton") is None:
        raise TrafficError(
            "Counting runs the kernels in Triton's interpreter, and Triton is not installed; it comes with "
            "requirements.txt on Linux. The formula needs none."
        )
    seconds = pace.forecast_seconds(problem, implementation, direction, gpu)
    if seconds > MOST_COUNTED and not without_limit:
        raise TrafficError(
            f"Counting {implementation} at {problem.queries:,} × {problem.keys:,} tokens would take about "
            f"{seconds / 60:,.0f} minutes; the formula gives the same bytes at once."
        )


def launches_here(
    problem: Problem, implementation: str, direction: Direction, gpu: str
) -> list[KernelTraffic]:
    """Count in this process, whose Triton must be the interpreter. The tensors take no memory."""
    from kernels.traffic.counting import counting

    if not interprets():
        raise TrafficError("Triton compiles in this process; count with in_worker=True.")
    with as_if_on(gpu), counting() as count:
        launch(problem, implementation, direction)
    return count.launches


def launch(
    problem: Problem, implementation: str, direction: Direction, device: str = "meta"
) -> None:
    """Launch the kernels of each pass once, on tensors without values."""
    chosen, scale = interpreted(implementation), problem.head_dim**-0.5
    kv_heads, dtype = problem.kv_heads or problem.heads, getattr(torch, problem.dtype)
    q = torch.zeros(problem.batch, problem.heads, problem.queries, problem.head_dim, device=device)
    q = q.to(dtype)
    k, v = (q.new_zeros(problem.batch, kv_heads, problem.keys, problem.head_dim) for _ in range(2))
    for part in passes(direction):
        if part == "forward":
            chosen.forward(q, k, v, scale, problem.causal)
        elif chosen.backward is not None:
            output = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
            lse = q.new_zeros(q.shape[:3], dtype=torch.float32)
            kept = chosen.empty_kept(q, k) if chosen.empty_kept else q.new_empty(0)
            saved = Saved(q, k, v, output, lse, kept, scale, problem.causal)
            chosen.backward(saved, torch.zeros_like(output), None)


def interpreted(implementation: str) -> Implementation:
    """What runs in Triton's interpreter: the implementation itself, or its twin in plain Triton."""
    return STAND_IN if implementation == STAND_IN.name else load(implementation)


def launches_in_worker(
    problem: Problem, implementation: str, direction: Direction, gpu: str, timeout_s: float
) -> list[KernelTraffic]:
    """Count in a fresh process, in which Triton interprets."""
    asked = json.dumps([dataclasses.asdict(problem), implementation, direction, gpu])
    try:
        done = subprocess.run(
            [sys.executable, "-m", WORKER, asked],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            cwd=Path(__file__).parents[2],
            env=environment_that_interprets(),
        )
    except subprocess.TimeoutExpired:
        raise TrafficError(
            f"Counting {implementation} took longer than {timeout_s:g} s and was stopped; allow more time, or "
            "take the formula."
        ) from None
    except OSError as trouble:
        raise TrafficError(
            f"No process could be started to count in ({trouble}); take the formula."
        ) from trouble
    return read_answer(done, implementation)


def read_answer(done: subprocess.CompletedProcess[str], implementation: str) -> list[KernelTraffic]:
    """The launches that a worker printed on its last line, or why there are none."""
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
        if "trouble" in answer:
            raise TrafficError(answer["trouble"])
        return [KernelTraffic(str(name), int(r), int(w)) for name, r, w in answer["launches"]]
    except (IndexError, KeyError, TypeError, ValueError):
        complaints = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise TrafficError(
            f"The process that counted {implementation} ended early (code {done.returncode}: "
            f"{complaints[-1].rstrip('.')}); count again, or take the formula."
        ) from None
