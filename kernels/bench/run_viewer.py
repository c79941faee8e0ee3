"""Run a recipe of whole programs: rounds of fresh processes, one contestant after the other, then medians and ratios."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import torch

from kernels.bench.recipes import ViewerRecipe, ViewerTarget
from kernels.bench.record import BenchError, Row, say
from kernels.selftest import self_test


def run(
    recipe: ViewerRecipe,
    sizes: tuple[int, ...],
    rounds: int,
    repeats: int,
    here: dict[str, str],
) -> Iterator[list[Row]]:
    """The rows of one size after another, a row a contestant: medians over all rounds, with the spread.

    The kernels are tested first: a speed is never reported for a wrong answer. The contestants of a
    round follow one another, so that a machine that slows down slows all of them.
    """
    tested = self_test()
    if not tested.passed:
        raise BenchError(tested.sentence)
    with tempfile.TemporaryDirectory() as folder:
        start(recipe, "prepare", folder)
        for size in sizes:
            found = {name: [] for name in recipe.contestants}
            for number in range(rounds):
                for name in recipe.contestants:
                    say(f"{recipe.name} {size} px, round {number + 1} of {rounds}: {name}")
                    found[name].append(start(recipe, name, folder, str(size), str(repeats)))
            check_agreement(found)
            yield [row(recipe, name, size, runs, here) for name, runs in found.items()]


def start(recipe: ViewerRecipe, name: str, folder: str, *more: str) -> dict:
    """One contestant in a process of its own."""
    command = [sys.executable, "-m", recipe.worker, name, folder, recipe.photo, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
        if "OutOfMemory" in last or done.returncode == -9:
            return {"failed": "out of memory"}
        raise BenchError(f"{name} failed: {last}")
    return json.loads(done.stdout.splitlines()[-1]) if more else {}


def check_agreement(found: dict[str, list[dict]]) -> None:
    """All contestants that give maps must give the same ones: half a percent of the largest value."""
    samples = {
        name: torch.tensor(runs[0]["sample"])
        for name, runs in found.items()
        if runs[0].get("sample")
    }
    names = list(samples)
    for name in names[1:]:
        difference = (samples[name] - samples[names[0]]).abs().max()
        if not difference <= 5e-3 * samples[names[0]].abs().max() + 1e-6:
            raise BenchError(
                f"{name} and {names[0]} disagree by {difference:.2g}; nothing is recorded."
            )


def row(recipe: ViewerRecipe, name: str, size: int, runs: list[dict], here: dict[str, str]) -> Row:
    """Medians of one contestant; empty where it ran out of memory."""
    failed = next((run["failed"] for run in runs if "failed" in run), "")
    times = sorted(t for run in runs for t in run.get("time_ms", []))
    first = runs[0]

    def median(key: str, digits: int) -> object:
        values = [run[key] for run in runs if key in run]
        return round(statistics.median(values), digits) if values else ""

    peak = median("peak_bytes", 0)
    found: Row = {
        "recipe": recipe.name,
        "contestant": name,
        "side": size,
        "tokens": first.get("tokens", ""),
        "device": first.get("device", ""),
        "dtype": first.get("dtype", ""),
        "time_ms": round(statistics.median(times), 3) if times else "",
        "time_low_ms": round(times[0], 3) if times else "",
        "time_high_ms": round(times[-1], 3) if times else "",
        "samples": len(times),
        "peak_mb": round(peak / 1e6, 1) if isinstance(peak, int | float) else "",
        "click_ms": median("click_ms", 3),
        "survey_ms": median("survey_ms", 3),
        "failed": failed,
    }
    return found | here


def verdicts(rows: list[Row], targets: tuple[ViewerTarget, ...]) -> Iterator[str]:
    """One sentence for each target and size: asked, reached."""
    table = {(r["contestant"], r["side"]): r for r in rows}
    for target in targets:
        for size in dict.fromkeys(r["side"] for r in rows if r["device"] == target.device):
            if target.sizes is not None and size not in target.sizes:
                continue
            ours, peer = (table[n, size][target.column] for n in (target.ours, target.peer))
            if not isinstance(ours, int | float) or not isinstance(peer, int | float):
                continue
            ratio = ours / peer
            word = "reached" if ratio <= target.factor else "NOT reached"
            yield (
                f"{target.column} at {size} px: {target.ours} / {target.peer} = {ratio:.3f}, "
                f"asked <= {target.factor:.3f}: {word}"
            )
