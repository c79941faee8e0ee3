"""Run a traffic recipe: bytes by formula, counted, and read from the GPU's own counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import torch

from kernels import traffic
from kernels.bench.judge import problem_of
from kernels.bench.recipes import TrafficRecipe
from kernels.bench.record import BenchError, Row, problem_columns, say
from kernels.problem import Problem
from kernels.traffic.ledger import Direction, Traffic, TrafficError
from kernels.traffic.measured import Measured, measured_all
from kernels.traffic.ncu import CACHES

ASKED_WITHIN = 0.03  # formula against what is asked of L2
LONGEST_S = 280.0  # one run of ncu
LONGEST_COUNT_S = 3000.0
Asked = tuple[Problem, str, Direction]
Figure = Traffic | TrafficError


def run(recipe: TrafficRecipe, here: Mapping[str, str]) -> Iterator[list[Row]]:
    """On a GPU by formula and measured; without one by formula and counted, both as if on `recipe.gpu`.

    Counting takes minutes of a processor, so a GPU does not wait for it.
    """
    asked: list[Asked] = list(product(recipe.problems, recipe.contestants, recipe.directions))
    on_gpu = torch.cuda.is_available()
    found = measured_all(asked, CACHES, timeout_s=LONGEST_S) if on_gpu else {}
    for one in asked:
        say(f"{recipe.name} {one[0]} {one[1]} {one[2]}")
        if not on_gpu and one[1] not in recipe.ours:
            continue
        rows = []
        if one[1] in recipe.ours:
            rows.append(row(recipe, one, "formula", formula(one, recipe.gpu)))
        if on_gpu:
            rows += [row(recipe, one, "measured", found[*one, cache], cache) for cache in CACHES]
        else:
            rows.append(row(recipe, one, "counted", counted(one, recipe.gpu)))
        yield [known | here for known in rows]


def among(recipe: TrafficRecipe, names: Sequence[str] | None) -> TrafficRecipe:
    """The recipe with these contestants alone, in its own order; None changes nothing.

    Raises:
        BenchError: the recipe has no contestant of that name.
    """
    if names is None:
        return recipe
    unknown = [name for name in names if name not in recipe.contestants]
    if unknown:
        known = ", ".join(recipe.contestants)
        raise BenchError(f"{unknown[0]} has no bytes in {recipe.name}; choose from {known}.")
    contestants, ours = (
        tuple(name for name in some if name in names) for some in (recipe.contestants, recipe.ours)
    )
    return replace(recipe, contestants=contestants, ours=ours)


def formula(asked: Asked, gpu: str) -> Figure:
    try:
        return traffic.formula(*asked, gpu=gpu)
    except TrafficError as fault:
        return fault


def counted(asked: Asked, gpu: str) -> Figure:
    try:
        return traffic.counted(
            *asked, gpu=gpu, in_worker=True, timeout_s=LONGEST_COUNT_S, without_limit=True
        )
    except TrafficError as fault:
        return fault


def row(recipe: TrafficRecipe, asked: Asked, source: str, found: Figure, cache: str = "") -> Row:
    """One figure; where there is none, why."""
    problem, name, direction = asked
    known = found if isinstance(found, Traffic) else None
    exact = found if isinstance(found, Measured) else None
    return {
        "recipe": recipe.name,
        "implementation": name,
        "direction": direction,
        **problem_columns(problem),
        "source": source,
        "cache": cache,
        "bytes_read": known.bytes_read if known else "",
        "bytes_written": known.bytes_written if known else "",
        "l2_read": exact.l2_read if exact else "",
        "l2_written": exact.l2_written if exact else "",
        "l2_looked_up": exact.l2_looked_up if exact else "",
        "time_us": round(exact.time_us, 3) if exact else "",
        "calibration_expected": exact.calibration.expected if exact else "",
        "calibration_read": exact.calibration.read if exact else "",
        "calibration_written": exact.calibration.written if exact else "",
        "failed": "" if known else str(found),
        "ncu": exact.ncu if exact else "",
    }  # fmt: skip


# --- was it reached? --------------------------------------------------------------------------------


def verdicts(recipe: TrafficRecipe, rows: Sequence[Row]) -> Iterator[str]:
    """The copy; the formula against what was counted, or asked of L2; the naive kernels against fa2."""
    yield from copies(rows)
    for one in rows:
        if one["source"] == "formula" or one["failed"] or one["cache"] == "cold":
            continue
        twin = next((r for r in rows if r["source"] == "formula" and same(r, one)), None)
        if twin is not None:
            yield f"{title(one)}: {against(twin, one)}"
    for problem, cache in product(recipe.hundredfold, CACHES):
        naive, flash = (moved(name, problem, cache, rows) for name in ("naive", "fa2"))
        if naive is not None and flash is not None:
            word = "reached" if naive > 100 * flash else "NOT reached"
            yield (
                f"{problem}, {cache}: naive moves {naive / flash:.1f} times the DRAM bytes of fa2, "
                f"asked more than 100: {word}"
            )


def copies(rows: Iterable[Row]) -> Iterator[str]:
    """The copy of known size that ran beside, once for each cache mode."""
    for cache in CACHES:
        one = next((r for r in rows if r["cache"] == cache and not r["failed"]), None)
        if one is None:
            continue
        read, written = (
            number(one[f"calibration_{way}"]) / number(one["calibration_expected"])
            for way in ("read", "written")
        )
        word = "reached" if max(abs(read - 1), abs(written - 1)) <= 0.02 else "NOT reached"
        yield (
            f"calibration copy, {cache}: read {read:.4f} and wrote {written:.4f} of what was copied, "
            f"asked within 2%: {word}"
        )


def against(twin: Row, one: Row) -> str:
    """Counted must be equal; what was asked of L2 comes in sectors of 32 bytes, without what L1 had."""
    asked = number(twin["bytes_read"]), number(twin["bytes_written"])
    if one["source"] == "counted":
        equal = asked == (number(one["bytes_read"]), number(one["bytes_written"]))
        return f"formula {'equals' if equal else 'does NOT equal'} counted"
    ratio = sum(asked) / (number(one["l2_read"]) + number(one["l2_written"]))
    word = "reached" if abs(ratio - 1) <= ASKED_WITHIN else "NOT reached"
    return f"formula / bytes asked of L2 = {ratio:.4f}, asked within {ASKED_WITHIN:.0%}: {word}"


def moved(name: str, problem: Problem, cache: str, rows: Sequence[Row]) -> float | None:
    """DRAM bytes of a forward pass, if they were measured."""
    wanted = replace(problem, kv_heads=problem.kv_heads or problem.heads)
    for one in rows:
        fits = (one["implementation"], one["direction"], one["cache"]) == (name, "forward", cache)
        if fits and problem_of(one) == wanted and not one["failed"]:
            return number(one["bytes_read"]) + number(one["bytes_written"])
    return None


def same(one: Row, other: Row) -> bool:
    """Are both of the same work?"""
    names = ("implementation", "direction")
    return all(one[n] == other[n] for n in names) and problem_of(one) == problem_of(other)


def title(one: Row) -> str:
    return f"{problem_of(one)} {one['implementation']} {one['direction']} {one['cache']}".rstrip()


def number(value: object) -> float:
    return float(str(value))
