"""May this run here? Asked before anything runs: hardware, memory, patience; each no is a sentence for the screen."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace

import torch

from kernels.bench.contestants import WORKS, make_inputs
from kernels.bench.forecast import refusal
from kernels.bench.proof import small_like
from kernels.bench.reading import Reading
from kernels.bench.run_kernels import ON_CPU
from kernels.implementation import Implementation
from kernels.memory import available_bytes
from kernels.problem import Problem
from kernels.registry import load

LONGEST_CALL_S = 20.0
SURELY_QUICK = {"cpu": 2**33, "cuda": 2**45}
"""Scores x head_dim of a call that need not be forecast."""
PROBE_TOKENS = {"cpu": 1024, "cuda": 8192}

NOT_ON_CPU = (
    "{name} is made for an NVIDIA GPU, and there is none here: its {what} in the interpreter says nothing about "
    "it. Measure eager and torch-cpu-flash instead."
)


class Refused(RuntimeError):
    """Why there is no figure, in one sentence."""


@dataclass(frozen=True)
class Terms:
    """How it is asked: where, how often, and whether what will not fit is tried all the same."""

    device: torch.device
    rounds: int
    try_anyway: bool = False


def release() -> None:
    """Give back what a call that is over, or that failed, had taken."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def must_run(reading: Reading, terms: Terms, what: str) -> Implementation:
    """The implementation, which can run this here.

    Raises:
        Refused: it cannot, or will not fit.
    """
    name, problem, device = reading.implementation, reading.problem, terms.device
    chosen = load(name)
    if device.type == "cpu" and name not in ON_CPU and not chosen.peer:
        raise Refused(NOT_ON_CPU.format(name=name, what=what))
    release()
    reason = refusal(problem, name, reading.direction, device, available_bytes(device))
    if reason is not None and not terms.try_anyway:
        raise Refused(reason)
    # Those that store P refuse by size what no GPU of this kind can hold. Tried anyway, all else still counts.
    shown = small_like(problem) if reason is not None and chosen.forward_keeping else problem
    reason = chosen.supports(shown, device)
    if reason is None and reading.direction != "forward":
        reason = chosen.reason_against_backward(shown, device)
    if reason is not None:
        raise Refused(reason)
    return chosen


def must_end_soon(chosen: Implementation, reading: Reading, terms: Terms) -> None:
    """
    Raises:
        Refused: a call would take too long, by that of a small one.
    """
    if terms.try_anyway or reading.time_us is not None:
        return
    seconds = seconds_a_call(chosen, reading.problem, reading.direction, terms.device)
    if seconds > LONGEST_CALL_S:
        raise Refused(
            f"{chosen.name} would take about {seconds:.0f} s for one call here. "
            "Take fewer tokens, or try it anyway."
        )


def seconds_a_call(
    chosen: Implementation, problem: Problem, direction: str, device: torch.device
) -> float:
    """About; 0 where it is surely quick. From one head's call of fewer tokens, whose time is that of its scores."""
    size = size_of(problem)
    if size * problem.head_dim < SURELY_QUICK[device.type]:
        return 0.0
    most = PROBE_TOKENS[device.type]
    small = replace(
        problem,
        batch=1,
        heads=problem.group,
        kv_heads=1,
        queries=min(most, problem.queries),
        keys=min(most, problem.keys),
    )
    work = WORKS[direction](chosen, make_inputs(small, device))
    work()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * size / size_of(small)


def size_of(problem: Problem) -> int:
    """Scores."""
    return problem.batch * problem.heads * problem.queries * problem.keys
