"""Bytes by formula for readings: what is known of traffic before anything is measured. No Streamlit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from app.figures.roofline import Moved
from app.text.speed import CHART
from kernels import Problem
from kernels.bench.reading import Reading
from kernels.traffic.counted import MOST_COUNTED
from kernels.traffic.counted import counting_seconds as seconds_of_counting
from kernels.traffic.formula import WITH_LOOPS, compulsory, formula, stores_matrix
from kernels.traffic.ledger import DIRECTIONS, TrafficError

ARCHITECTURES = {"NVIDIA H200": "sm_90", "NVIDIA H100": "sm_90"}
"""Whose rows of the tile tables a recorded machine took."""


@lru_cache(maxsize=4096)
def formula_bytes(
    problem: Problem, implementation: str, direction: str, gpu: str | None
) -> int | None:
    """Bytes that a kernel of ours asks for, or None where there is no formula for it."""
    if implementation not in WITH_LOOPS:
        return None
    try:
        return formula(problem, implementation, as_direction(direction), gpu).total
    except TrafficError:
        return None


@lru_cache(maxsize=4096)
def least_bytes(problem: Problem, implementation: str, direction: str) -> int | None:
    """Each tensor moved once; with the matrix where the implementation stores it."""
    try:
        matrix = stores_matrix(implementation)
        return compulsory(problem, matrix, as_direction(direction)).total
    except TrafficError:
        return None


def counting_seconds(entries: Iterable[tuple[Problem, str, str]]) -> float:
    """About how long it takes to count their bytes, without those that would take too long to be tried."""
    found = [counted_in(*entry) for entry in entries if entry[1] in WITH_LOOPS]
    return sum(seconds for seconds in found if seconds <= MOST_COUNTED)


@lru_cache(maxsize=4096)
def counted_in(problem: Problem, implementation: str, direction: str) -> float:
    """Seconds of one count; none where it is refused at once."""
    try:
        return seconds_of_counting(problem, implementation, as_direction(direction))
    except TrafficError:
        return 0.0


def formulas(
    readings: Iterable[Reading], gpu: str | None = None
) -> dict[tuple[Problem, str, str], int]:
    """(problem, implementation, direction) -> bytes, for those that have a formula."""
    found = {}
    for reading in readings:
        key = reading.problem, reading.implementation, reading.direction
        total = formula_bytes(*key, gpu)
        if total is not None:
            found[key] = total
    return found


def moved(source: str) -> Moved:
    """What the roofline divides by: cold HBM bytes where they were read, else the least by formula."""

    def of(reading: Reading) -> tuple[int, str] | None:
        if reading.hbm_cold is not None:
            return sum(reading.hbm_cold), CHART["cold"].format(source=source)
        least = least_bytes(reading.problem, reading.implementation, reading.direction)
        return None if least is None else (least, CHART["compulsory"])

    return of


def as_direction(direction: str):
    """The direction as a ledger's.

    Raises:
        TrafficError: there is none of this name.
    """
    for known in DIRECTIONS:
        if direction == known:
            return known
    raise TrafficError(f"{direction} is no pass; choose from {', '.join(DIRECTIONS)}.")
