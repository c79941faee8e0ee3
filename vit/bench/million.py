"""A picture of a million tokens: every map of one query, rows and columns, and what each token receives.

    python -m vit.bench.million --out FILE [--side 14014] [--keep] [--commit HASH]

Makes the picture, runs the model on it, and reads each layer as it passes: the query's row and column in
every head, and the sums of all columns. Samples of all three are held against float64. Then it appends to
the file, a row a stage: seconds, peak memory, largest error. With --keep, q, k, v and the log-sum-exp of all
layers stay in memory, as after `model.trace`, and the maps of another query are read from them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernels.bench.record import RESULTS, BenchError, Row, append, machine, say, table
from vit import load_image, load_model
from vit.bench.million_read import Clock, Maps, grid_over, read_all
from vit.image.mosaic import mosaic
from vit.maps.row import row_tokens
from vit.model import VisionTransformer
from vit.trace import Query
from vit.weights import WeightsError

SAMPLES = Path(__file__).parents[2] / "app" / "samples"
PICTURES = ("astronaut.jpg", "cat.png", "coffee.jpg", "rocket.jpg")
WARM_UP_SIDE = 2072
"""Large enough that the kernels of a million tokens are compiled and loaded."""
LARGEST_ON_CPU = 1036
LARGEST_ERROR = 1e-3
"""Beyond it the maps are wrong, and nothing is recorded."""
READING = ("pixels", "attention", "other", "rows", "columns", "received")
"""The stages from the picture in memory to all maps, which make the total."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, record and print; 2 with one line on stderr when it fails."""
    options = parser().parse_args(arguments)
    try:
        model = load_model(options.model)
        _, rows = measure(model, options.side, "class", options.keep, options.implementation)
        rows = [row | machine(options.commit) for row in rows]
        append(options.out, rows)
    except (BenchError, WeightsError, ValueError, OSError) as fault:
        print(f"python -m vit.bench.million: {fault}", file=sys.stderr)
        return 2
    print(table(rows, ("tokens", "stage", "seconds", "peak_gb", "error", "sum_off")))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line, with its help."""
    parser = argparse.ArgumentParser(prog="python -m vit.bench.million", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--side", type=int, default=14_014, help="pixels along a side, 14 a patch (default: 14014)")
    add("--model", default="dinov2-small", help="a preset, a folder, or owner/name on the hub")
    add("--implementation", default="auto", help="which attention runs (default: auto)")
    add("--keep", action="store_true", help="keep the trace of all layers")
    add("--out", type=Path, default=RESULTS / "million.csv", help="the file to append to")
    add("--commit", help="the commit measured, where the tree is a copy without its history")
    return parser


def measure(
    model: VisionTransformer,
    side: int,
    query: Query = "class",
    keep: bool = False,
    implementation: str = "auto",
) -> tuple[Maps, list[Row]]:
    """All maps of the query in a mosaic of this side, and the figures of each stage.

    Raises:
        BenchError: the side does not suit the model or the machine, or the maps are wrong.
    """
    patch = model.config.patch
    if side < patch or side % patch:
        raise BenchError(f"The side must be a multiple of a patch, {patch} px; {side} is not.")
    if model.device.type == "cpu" and side > LARGEST_ON_CPU:
        raise BenchError(f"Above {LARGEST_ON_CPU} px this needs a GPU; choose a smaller --side.")
    name = model.named(implementation, grid_over(side, side, patch))
    photos = [load_image(SAMPLES / name) for name in PICTURES]
    if side > WARM_UP_SIDE:
        say(f"warming up at {WARM_UP_SIDE} px")
        small = mosaic(WARM_UP_SIDE, photos, model.device)
        read_all(model, small, query, Clock(model.device), implementation=name)
    say(f"{side} px: {1 + (side // patch) ** 2:,} tokens")
    clock = Clock(model.device)
    with clock.stage("picture"):
        picture = mosaic(side, photos, model.device)
    maps = read_all(model, picture, query, clock, keep, name)
    if maps.trace is not None:
        with clock.stage("another query"):
            for number in range(model.config.layers):
                row_tokens(maps.trace, number, (0, 0)).cpu()
    if not maps.errors.largest <= LARGEST_ERROR:  # so that NaN is refused too
        raise BenchError(f"The maps are wrong, so nothing is recorded: {maps.errors}.")
    return maps, rows_of(model, side, name, clock, maps)


def rows_of(
    model: VisionTransformer, side: int, implementation: str, clock: Clock, maps: Maps
) -> list[Row]:
    """A row for each stage, the total last; what errors are shares of says `Errors`."""
    problem = model.problem(grid_over(side, side, model.config.patch))
    about: Row = {
        "recipe": "million",
        "model": model.name,
        "side": side,
        "tokens": problem.queries,
        "layers": model.config.layers,
        "heads": problem.heads,
        "dtype": problem.dtype,
        "implementation": implementation,
        "trace": "passing" if maps.trace is None else "kept",
    }
    seconds, peaks = dict(clock.seconds), dict(clock.peaks)
    del seconds["forward"]  # which is attention and other
    seconds["total"] = sum(seconds[stage] for stage in READING)
    if peaks:
        peaks["other"] = peaks.pop("forward")
        peaks["total"] = max(peaks[stage] for stage in READING if stage in peaks)
    errors = maps.errors
    error = {"rows": errors.rows, "columns": errors.columns, "received": errors.received}
    sum_off = {"rows": errors.row_sums, "received": errors.received_sums}
    return [
        about
        | {
            "stage": stage,
            "seconds": round(seconds[stage], 3),
            "peak_gb": round(peaks[stage] / 1e9, 2) if stage in peaks else "",
            "error": f"{error[stage]:.1e}" if stage in error else "",
            "sum_off": f"{sum_off[stage]:.1e}" if stage in sum_off else "",
        }
        for stage in seconds
    ]


if __name__ == "__main__":
    sys.exit(main())
