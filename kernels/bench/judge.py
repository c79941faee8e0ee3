"""Was it reached? One sentence for each target and problem: asked, reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernels.bench.recipes import KernelRecipe, KernelTarget
from kernels.bench.record import Row
from kernels.problem import Problem

LINEAR_WITHIN = 0.05
SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "head_dim")
LINEAR_OVER = 3  # the largest problems, each four times the one before


def verdicts(recipe: KernelRecipe, rows: Sequence[Row]) -> Iterator[str]:
    """The targets were set for a GPU: on a CPU nothing is judged."""
    by_problem: dict[Problem, dict[tuple[object, object], Row]] = {}
    for row in rows:
        by_problem.setdefault(problem_of(row), {})[row["contestant"], row["direction"]] = row
    for target in recipe.targets:
        for problem, found in by_problem.items():
            if problem.dtype == "bfloat16" and target.covers(problem):
                yield f"{problem}: {verdict(target, found)}"
    for name in recipe.linear:
        for direction in recipe.directions:
            own = [r for r in rows if (r["contestant"], r["direction"]) == (name, direction)]
            yield f"{name}, {direction}: {linear(own)}"


def problem_of(row: Mapping[str, object]) -> Problem:
    """The problem that a row was measured on."""
    sizes = {name: int(str(row[name])) for name in SIZES}
    return Problem(**sizes, dtype=str(row["dtype"]), causal=str(row["causal"]) == "True")


def verdict(target: KernelTarget, found: dict[tuple[object, object], Row]) -> str:
    """What was asked of one problem, and what came."""
    ours = found.get((target.ours, target.direction))
    if ours is None:
        return f"{target.ours} took no part: not judged"
    if not isinstance(ours["time_us"], float):
        return f"{target.ours} {target.direction} failed ({ours['failed']}): NOT reached"
    name = f"{target.ours} {target.direction}"
    if not target.peer:
        word = "reached" if ours["time_us"] <= target.limit_us else "NOT reached"
        return f"{name} {ours['time_us']:.1f} us, asked <= {target.limit_us:.1f} us: {word}"
    peer = found.get((target.peer, target.peer_direction or target.direction))
    if peer is None or not isinstance(peer["time_us"], float):
        why = f" ({peer['failed']})" if peer else ""
        return f"{target.peer} was not timed{why}: not judged"
    ratio = ours["time_us"] / peer["time_us"]
    word = "reached" if ratio <= target.factor else "NOT reached"
    return f"{name} / {target.peer} = {ratio:.3f}, asked <= {target.factor:.3f}: {word}"


def linear(rows: Sequence[Row]) -> str:
    """Do the bytes for each token stay the same over the largest problems?"""
    sized = [
        (int(str(r["queries"])), 1e6 * r["peak_mb"])
        for r in rows
        if isinstance(r["peak_mb"], float)
    ]
    last = sorted(sized)[-LINEAR_OVER:]
    if len(last) < LINEAR_OVER:
        return "too few sizes ran: not judged"
    each = [peak / tokens for tokens, peak in last]
    asked = f"asked the same within {LINEAR_WITHIN:.0%}"
    word = "reached" if max(each) <= (1 + LINEAR_WITHIN) * min(each) else "NOT reached"
    listed = ", ".join(f"{b:.1f} at {n}" for b, (n, _) in zip(each, last, strict=True))
    return f"peak bytes a token {listed}, {asked}: {word}"
