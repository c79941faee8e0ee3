"""One question about one implementation on one problem, answered here and now: time, memory, traffic, energy.

Each answer is a few fields of a `Reading`; what cannot be had is `Refused` in a sentence for the screen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch.utils.benchmark import Timer

from kernels.bench import timing
from kernels.bench.allowed import Refused, Terms, must_end_soon, must_run, release, size_of
from kernels.bench.contestants import WORKS, Inputs, make_inputs
from kernels.bench.forecast import needed_bytes
from kernels.bench.peak import NoPeak, measured_peak
from kernels.bench.proof import Truth, WrongAnswer, small_like
from kernels.bench.reading import Reading
from kernels.implementation import Implementation
from kernels.memory import in_words
from kernels.problem import Problem
from kernels.registry import load
from kernels.traffic.ledger import Direction, TrafficError

SLOW_CALL_S = 1.0
"""From here on a call is not repeated for warmth: a visitor waits."""
SLOW_SAMPLES = 3
LONGEST_COUNT_S = 240.0  # shorter than what the app waits for an answer

CHECKED_SCORES = {"cpu": 2**24, "cuda": 2**28}
"""Gradients are checked on the very inputs up to here; float64 would take longer than what is measured."""
NO_COUNTERS = "HBM bytes are read from an NVIDIA GPU's own counters, and there is none here."
NO_METER = "Energy is read from an NVIDIA GPU's own meter, and there is none here."


Fields = Mapping[str, Any]
Answer = Fields | str
"""Fields of a reading, or the sentence that says why not."""


def ask(want: str, reading: Reading, terms: Terms) -> Answer:
    """One question. Nothing that a failed call had taken is held when it returns."""
    try:
        return ANSWERS[want](reading, terms)
    except (Refused, NoPeak, WrongAnswer, TrafficError) as reason:
        said = str(reason)
    except Exception as fault:  # other people's kernels may raise anything; the others still count
        said = said_of(fault, reading)
    release()  # outside the except block, where no traceback holds the tensors any more
    return said


def said_of(fault: Exception, reading: Reading) -> str:
    """What went wrong, for the screen."""
    lines = str(fault).strip().splitlines() or [""]
    if isinstance(fault, MemoryError | torch.OutOfMemoryError) or "allocate memory" in lines[0]:
        needed = in_words(needed_bytes(reading.problem, reading.implementation, reading.direction))
        return f"{reading.implementation} ran out of memory: it needs about {needed}. Take fewer tokens."
    return f"{reading.implementation} failed: {type(fault).__name__}: {lines[0]}"[:240]


# --- time ---------------------------------------------------------------------------------------------


def time_of(reading: Reading, terms: Terms) -> Fields:
    """Checked against float64 first, then timed: medians, with the least and the most."""
    chosen = must_run(reading, terms, "time")
    must_end_soon(chosen, reading, terms)
    work, seconds = right_work(chosen, reading, terms)
    timed_by, samples = samples_of(work, seconds, terms)
    release()
    return {
        "time_us": statistics.median(samples),
        "time_low_us": min(samples),
        "time_high_us": max(samples),
        "samples": len(samples),
        "timed_by": timed_by,
    }


def right_work(chosen: Implementation, reading: Reading, terms: Terms) -> tuple[timing.Work, float]:
    """The work, which has just given the right answer, and about how many seconds it took.

    Raises:
        WrongAnswer: it gave another one.
    """
    problem, direction = reading.problem, reading.direction
    truth = truth_of(problem, terms.device)
    work = WORKS[direction](chosen, truth.inputs)
    start = time.perf_counter()
    result: Any = work()
    seconds = time.perf_counter() - start
    if direction == "forward":
        truth.rows.check(*result)
        return work, seconds
    if size_of(problem) > CHECKED_SCORES[terms.device.type]:
        truth = truth_of_small(small_like(problem), terms.device)
        result = WORKS[direction](chosen, truth.inputs)()
    truth.gradients.check(*result, stores=chosen.empty_kept is not None)
    return work, seconds


@lru_cache(maxsize=1)
def truth_of(problem: Problem, device: torch.device) -> Truth:
    """Kept for the next entry, which as a rule is another implementation on the same problem."""
    return Truth(make_inputs(problem, device))


@lru_cache(maxsize=1)
def truth_of_small(problem: Problem, device: torch.device) -> Truth:
    """The same for the small problem on which gradients are checked."""
    return Truth(make_inputs(problem, device))


def samples_of(work: timing.Work, seconds: float, terms: Terms) -> tuple[str, Sequence[float]]:
    """How it was timed, and microseconds a call."""
    if terms.device.type == "cpu" and seconds > SLOW_CALL_S:
        timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
        # It runs once to learn how long it takes, and then until the time is over.
        found = timer.blocked_autorange(min_run_time=(SLOW_SAMPLES - 1) * seconds)
        return "benchmark", [1e6 * one for one in found.times]
    release()  # what is cached now cannot be given back while a graph is captured
    sampler = sampler_of(work, terms.device)
    if sampler is None:  # no room for a graph's own memory beside
        release()
        sampler = timing.by_events(work, 1e6 * seconds)
    return sampler.timed_by, timing.interleaved({"it": sampler}, terms.rounds)["it"]


def sampler_of(work: timing.Work, device: torch.device) -> timing.Sampler | None:
    try:
        return timing.sampler(work, device, timing.GraphMemory())
    except torch.OutOfMemoryError:
        return None


# --- memory, traffic, energy --------------------------------------------------------------------------


def memory_of(reading: Reading, terms: Terms) -> Fields:
    """The allocator's peak on a GPU, that of a process of its own on a CPU; beyond what was there before."""
    chosen = must_run(reading, terms, "memory")
    if terms.device.type == "cpu":
        must_end_soon(chosen, reading, terms)
        truth_of.cache_clear()
        found = measured_peak(reading.problem, reading.implementation, reading.direction)
        return {"peak_bytes": found, "peak_by": "process"}
    work = WORKS[reading.direction](chosen, inputs_of(reading.problem, terms.device))
    work()  # some compile for each shape, some make workspaces that stay
    release()
    _, peak = timing.watched(work, terms.device)
    return {"peak_bytes": peak, "peak_by": "allocator"}


def inputs_of(problem: Problem, device: torch.device) -> Inputs:
    return truth_of(problem, device).inputs


def counted_of(reading: Reading, terms: Terms) -> Fields:
    """Bytes asked for by the kernel's own loads and stores, in Triton's interpreter."""
    from kernels.traffic.counted import counted

    found = counted(
        reading.problem,
        reading.implementation,
        cast(Direction, reading.direction),
        in_worker=terms.device.type == "cuda",
        timeout_s=LONGEST_COUNT_S,
    )
    return {"counted": (found.bytes_read, found.bytes_written)}


def energy_of(reading: Reading, terms: Terms) -> Fields:
    """Millijoules of one call, by NVIDIA's own meter."""
    if terms.device.type != "cuda":
        raise Refused(NO_METER)
    from kernels.traffic.nvml import energy_mj

    chosen = must_run(reading, terms, "energy")
    work = WORKS[reading.direction](chosen, inputs_of(reading.problem, terms.device))
    return {"energy_mj": energy_mj(work, terms.device)}


ANSWERS: dict[str, Callable[[Reading, Terms], Fields]] = {
    "time": time_of,
    "memory": memory_of,
    "counted": counted_of,
    "energy": energy_of,
}


def traffic_of(readings: Sequence[Reading], terms: Terms) -> list[Answer]:
    """DRAM and L2 bytes of all of them, by the GPU's counters: a few runs of the profiler for all together.

    Where it may read none of them, the average that NVML gives stands in for it, under its own name.
    """
    if terms.device.type != "cuda":
        return [NO_COUNTERS] * len(readings)
    from kernels.traffic.measured import measured_all

    against: list[str | None] = [reason_against(one, terms) for one in readings]
    truth_of.cache_clear()  # the profiler's own process needs the room
    release()
    able: list[tuple[Problem, str, Direction]] = [
        (one.problem, one.implementation, cast(Direction, one.direction))
        for one, reason in zip(readings, against, strict=True)
        if reason is None
    ]
    found = measured_all(able) if able else {}
    answers = [
        reason or fields_of(one, found) for one, reason in zip(readings, against, strict=True)
    ]
    if all(isinstance(answer, str) for answer in answers):
        pairs = zip(readings, against, answers, strict=True)
        return [reason or averaged(one, str(said), terms) for one, reason, said in pairs]
    return answers


def averaged(reading: Reading, said: str, terms: Terms) -> Answer:
    """The average of a second of calls, beside why the counters `said` nothing; else only that."""
    from kernels.traffic.nvml import bandwidth_average

    try:
        work = WORKS[reading.direction](
            load(reading.implementation), inputs_of(reading.problem, terms.device)
        )
        found = bandwidth_average(work, terms.device)
    except Exception:  # the counters' sentence is the one that helps
        release()
        return said
    return {"hbm_average": found.bytes_per_call, "refused": {**reading.refused, "hbm": said}}


def reason_against(reading: Reading, terms: Terms) -> str | None:
    try:
        must_run(reading, terms, "traffic")
    except Refused as reason:
        return str(reason)
    return None


def fields_of(reading: Reading, found: Mapping[Any, Any]) -> Answer:
    """What the profiler says of one of them, cold and warm; where it has one of the two only, with the reason."""
    key = (reading.problem, reading.implementation, reading.direction)
    had: dict[str, Any] = {}
    said = None
    for cache in ("cold", "warm"):
        one = found.get((*key, cache))
        if one is None or isinstance(one, Exception):
            said = said or str(one or "The profiler said nothing about it; measure it again.")
        else:
            had[f"hbm_{cache}"] = (one.bytes_read, one.bytes_written)
            had.setdefault("l2", (one.l2_read, one.l2_written))
    if said is not None and had:
        had["refused"] = {**reading.refused, "hbm": said}
    return had or said or ""
