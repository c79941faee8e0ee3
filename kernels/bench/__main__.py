"""python -m kernels.bench RECIPE"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from kernels.bench.recipes import RECIPES
from kernels.bench.record import RESULTS, append
from kernels.bench.run import BenchError, Row, run, verdicts

SHOWN = ("contestant", "side", "tokens", "time_ms", "time_low_ms", "time_high_ms", "peak_mb")
MORE = ("click_ms", "survey_ms", "failed")


def table(rows: list[Row]) -> str:
    """The rows as aligned columns."""
    names = SHOWN + MORE
    lines = [names, *(tuple(str(row[name]) for name in names) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one recipe; 0 when it ran, 2 with one line on stderr when it could not."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("recipe", choices=RECIPES, help="what to measure")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="sides in pixels; default: the recipe's"
    )
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes for each contestant")
    parser.add_argument("--repeats", type=int, default=1, help="timed runs in each process")
    parser.add_argument("--out", type=Path, help="CSV file to add to; default: results/RECIPE.csv")
    parser.add_argument("--commit", help="the commit, where this is a copy without its history")
    parser.add_argument("--dry", action="store_true", help="measure and print, record nothing")
    options = parser.parse_args(arguments)
    recipe = RECIPES[options.recipe]
    sizes = recipe.sizes_on_gpu if torch.cuda.is_available() else recipe.sizes_on_cpu
    sides = tuple(options.sizes or sizes)
    rows: list[Row] = []
    try:
        for part in run(recipe, sides, options.rounds, options.repeats, options.commit):
            rows += part
            if not options.dry:
                append(options.out or RESULTS / f"{recipe.name}.csv", part)
    except (BenchError, ValueError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    print(table(rows))
    print("\n".join(verdicts(rows, recipe.targets)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
