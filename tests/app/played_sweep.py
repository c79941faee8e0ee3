"""Readings of a sweep that nobody ran, and their way into a played job."""

from __future__ import annotations

from typing import Any

from app.jobs import Entry, Job
from kernels.bench.reading import Reading
from kernels.traffic.formula import WITH_LOOPS


def played_reading(entry: Entry, **values: Any) -> Reading:
    """A reading whose time goes with N² and whose peak goes with N², or with N for flash."""
    problem, name, _ = entry
    scores = problem.batch * problem.heads * problem.queries**2
    slow = {"eager": 8.0, "naive": 4.0}.get(name, 1.0)
    time_us = slow * (3.0 + scores * problem.head_dim * 1e-8)
    stores = name in ("eager", "naive")
    peak = 2 * scores if stores else 2 * problem.batch * problem.heads * problem.queries * 66
    known: dict[str, Any] = {
        "time_us": time_us,
        "time_low_us": time_us * 0.95,
        "time_high_us": time_us * 1.1,
        "samples": 9,
        "timed_by": "benchmark",
        "peak_bytes": peak,
        "peak_by": "process",
        "machine": "a played machine",
        "when": "2026-11-30 12:00",
        "versions": "torch 1",
    }
    if name in WITH_LOOPS:
        known["counted"] = (3 * peak + 1000, peak)
    return Reading(*entry, **(known | values))


def refused_reading(entry: Entry, sentence: str) -> Reading:
    """A reading of what could neither be timed nor watched."""
    return Reading(*entry, refused={"time": sentence, "memory": sentence})


def measure(job: Job, first: int, last: int, **values: Any) -> None:
    """The entries from `first` to before `last` have come in."""
    readings = list(job.readings)
    for place in range(first, last):
        readings[place] = played_reading(job.request.entries[place], **values)
    progress = last / len(readings)
    job.show(
        state="running",
        readings=tuple(readings),
        progress=progress,
        sentence=f"Timing {last}",
    )


def refuse(job: Job, place: int, sentence: str) -> None:
    """One entry could not be run."""
    readings = list(job.readings)
    readings[place] = refused_reading(job.request.entries[place], sentence)
    job.show(readings=tuple(readings))
