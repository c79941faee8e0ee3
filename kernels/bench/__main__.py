"""python -m kernels.bench RECIPE"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from kernels.bench import judge, report, run_kernels, run_traffic, run_viewer, tune
from kernels.bench.recipes import RECIPES, KernelRecipe, Recipe, TrafficRecipe, ViewerRecipe
from kernels.bench.record import RESULTS, BenchError, Row, append, machine, table
from kernels.problem import Problem

VIEWER_SHOWN = (
    "contestant", "side", "tokens", "time_ms", "time_low_ms", "time_high_ms", "peak_mb",
    "click_ms", "survey_ms", "failed",
)  # fmt: skip
KERNELS_SHOWN = (
    "contestant", "direction", "batch", "heads", "queries", "head_dim", "causal",
    "time_us", "time_low_us", "time_high_us", "samples", "timed_by", "tflops", "peak_mb", "failed",
)  # fmt: skip
TRAFFIC_SHOWN = (
    "implementation", "direction", "batch", "heads", "queries", "head_dim", "source", "cache",
    "bytes_read", "bytes_written", "l2_read", "l2_written", "time_us", "failed",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Do one thing; 0 when it was done, 2 with one line on stderr when it could not be."""
    options = parser().parse_args(arguments)
    try:
        options.do(options)
    except (BenchError, ValueError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """One sub-command for each recipe, and `tune` and `report`."""
    whole = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    commands = whole.add_subparsers(required=True, metavar="RECIPE")
    for recipe in RECIPES.values():
        one = commands.add_parser(recipe.name, help=recipe.about, description=recipe.about)
        if isinstance(recipe, ViewerRecipe):
            add_viewer_options(one)
            one.set_defaults(do=do_viewer, recipe=recipe)
        elif isinstance(recipe, TrafficRecipe):
            add_contestants(one)
            one.set_defaults(do=do_traffic, recipe=recipe)
        else:
            add_kernel_options(one)
            one.set_defaults(do=do_kernels, recipe=recipe)
        add_recording_options(one)
    tuning = commands.add_parser("tune", help=tune.__doc__, description=tune.__doc__)
    tune.add_options(tuning)
    add_recording_options(tuning)
    tuning.set_defaults(do=do_tune)
    reporting = commands.add_parser("report", help=report.__doc__, description=report.__doc__)
    reporting.set_defaults(do=lambda _: report.write())
    return whole


def add_viewer_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--sizes", type=int, nargs="+", help="sides in pixels; default: the recipe's")
    one.add_argument("--rounds", type=int, default=3, help="fresh processes for each contestant")
    one.add_argument("--repeats", type=int, default=1, help="timed runs in each process")


def add_kernel_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--peers", action="store_true", help="other people's kernels take part too")
    one.add_argument("--rounds", type=int, default=9, help="samples of each contestant")
    add_contestants(one)
    one.add_argument("--directions", nargs="+", choices=run_kernels.FLOPS, help="these instead")
    one.add_argument(
        "--only",
        action="append",
        metavar="B,H,N,D",
        help="this problem alone, the recipe's or another: batch, heads, tokens, head_dim",
    )


def add_contestants(one: argparse.ArgumentParser) -> None:
    one.add_argument("--contestants", nargs="+", metavar="NAME", help="these alone")


def add_recording_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--out", type=Path, help="CSV file to add to; default: results/RECIPE.csv")
    one.add_argument("--commit", help="the commit, where this is a copy without its history")
    one.add_argument("--dry", action="store_true", help="measure and print, record nothing")


def do_viewer(options: argparse.Namespace) -> None:
    recipe: ViewerRecipe = options.recipe
    on_gpu = torch.cuda.is_available()
    sides = tuple(options.sizes or (recipe.sizes_on_gpu if on_gpu else recipe.sizes_on_cpu))
    here = machine(options.commit)
    rows = recorded(
        run_viewer.run(recipe, sides, options.rounds, options.repeats, here), recipe.name, options
    )
    print(table(rows, VIEWER_SHOWN))
    for sentence in run_viewer.verdicts(rows, recipe.targets):
        print(sentence)


def do_kernels(options: argparse.Namespace) -> None:
    recipe: KernelRecipe = options.recipe
    names = run_kernels.contestants(recipe, options.peers, options.contestants)
    problems = chosen_problems(recipe, options.only)
    directions = tuple(options.directions or recipe.directions)
    here = machine(options.commit)
    rows = recorded(
        run_kernels.run(recipe, problems, names, options.rounds, here, directions),
        recipe.name,
        options,
    )
    print(table(rows, KERNELS_SHOWN))
    for sentence in judge.verdicts(recipe, rows):
        print(sentence)


def do_traffic(options: argparse.Namespace) -> None:
    recipe: TrafficRecipe = run_traffic.among(options.recipe, options.contestants)
    rows = recorded(run_traffic.run(recipe, machine(options.commit)), recipe.name, options)
    print(table(rows, TRAFFIC_SHOWN))
    for sentence in run_traffic.verdicts(recipe, rows):
        print(sentence)


def do_tune(options: argparse.Namespace) -> None:
    recorded(tune.run(options, machine(options.commit)), "tune", options)


def recorded(parts, name: str, options: argparse.Namespace) -> list[Row]:
    """All rows, each part written to its file as soon as it was measured."""
    rows: list[Row] = []
    for part in parts:
        rows += part
        if not options.dry:
            append(options.out or RESULTS / f"{name}.csv", part)
    return rows


def chosen_problems(recipe: Recipe, only: list[str] | None) -> list[Problem]:
    """The recipe's problems for this machine, or those of them, or others, that --only names.

    Raises:
        BenchError: --only is not four whole numbers.
    """
    assert isinstance(recipe, KernelRecipe)
    usual = list(recipe.on_gpu if torch.cuda.is_available() else recipe.on_cpu)
    if not only:
        return usual
    dtype = "bfloat16" if torch.cuda.is_available() else "float32"
    found = []
    for text in only:
        try:
            batch, heads, tokens, head_dim = map(int, text.split(","))
        except ValueError as fault:
            raise BenchError(f"--only {text}: give batch,heads,tokens,head_dim") from fault
        wanted = Problem(batch, heads, tokens, tokens, head_dim, dtype)
        same = [
            p
            for p in usual
            if (p.batch, p.heads, p.queries, p.head_dim) == (batch, heads, tokens, head_dim)
        ]
        found += same or [wanted]
    return found


if __name__ == "__main__":
    sys.exit(main())
