"""What was recorded on a GPU at about this size; it stands beside what is measured, never in it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

from app.controls.cost_figures import Known
from kernels import Problem
from kernels.bench.reading import Reading
from kernels.bench.recorded import recorded
from kernels.traffic import stores_matrix


@cache
def readings() -> tuple[Reading, ...]:
    """The committed files, read once."""
    return tuple(recorded())


def nearest(
    found: Iterable[Reading], problem: Problem, names: Sequence[str]
) -> tuple[Reading, ...]:
    """The readings of one recorded problem on one machine: the nearest in tokens to this one.

    Of the same heads, head_dim, batch and mask, forward, and of two of these implementations at least:
    one alone says nothing of what is saved. In the order of `names`.
    """
    together: dict[tuple[Problem, str], dict[str, Reading]] = defaultdict(dict)
    for reading in found:
        if reading.direction == "forward" and like(reading.problem, problem):
            together[reading.problem, reading.machine][reading.implementation] = reading
    chosen = {
        key: tuple(by_name[name] for name in names if name in by_name)
        for key, by_name in together.items()
    }
    enough = [key for key, group in chosen.items() if len(group) >= 2]
    if not enough or problem.empty:
        return ()
    return chosen[min(enough, key=lambda key: distance(chosen[key], problem))]


def like(one: Problem, other: Problem) -> bool:
    """True where only the number of tokens and the dtype may differ."""
    return one.queries == one.keys and (
        (one.batch, one.heads, one.kv_heads or one.heads, one.head_dim, one.causal)
        == (other.batch, other.heads, other.kv_heads or other.heads, other.head_dim, other.causal)
    )


def distance(group: Sequence[Reading], problem: Problem) -> tuple[float, int, bool]:
    """As a factor of tokens; of the equally near, what says the most, then what has the same dtype."""
    one = group[0].problem
    figures = [(of.time_us, of.peak_bytes, of.hbm_cold, of.hbm_warm) for of in group]
    said = sum(figure is not None for four in figures for figure in four)
    return abs(math.log(one.queries / problem.queries)), -said, one.dtype != problem.dtype


def as_known(found: Sequence[Reading]) -> list[Known]:
    return [
        Known(reading.implementation, reading, stores_matrix(reading.implementation))
        for reading in found
    ]
