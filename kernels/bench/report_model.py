"""Tables of docs/performance.md about whole models and their maps, and about FP8: one function a file.

Each takes the rows of one machine, already the latest of their kind, and gives the parts of its section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.bench.report_tables import (
    NOT_TIMED,
    Cell,
    Line,
    grid,
    latest,
    listing,
    read,
    recorded,
    three_digits,
)


@dataclass(frozen=True)
class Section:
    """A file of results: its name, what it is about, what tells its rows apart, and its tables."""

    name: str
    about: str
    key: tuple[str, ...]
    parts: Callable[[Sequence[Line]], list[str]]


def model_parts(results: Path) -> list[str]:
    """A section for each file, and in it a part for each machine."""
    parts = []
    for section in SECTIONS:
        rows = read(results / f"{section.name}.csv")
        parts.append(f"### {section.name}\n\n{section.about}\n")
        if not rows:
            parts.append("Nothing is recorded yet.\n")
        for machine in dict.fromkeys(row["machine"] for row in rows):
            own = latest([row for row in rows if row["machine"] == machine], section.key)
            parts.append(f"#### {section.name} on {machine}\n\n{recorded(own)}\n")
            parts += section.parts(own)
    return parts


def of(name: str) -> Cell:
    """The cell as it was recorded."""
    return lambda row: row[name] or NOT_TIMED


def number(name: str) -> Cell:
    """The cell in three digits."""
    return lambda row: three_digits(row[name]) if row[name] else NOT_TIMED


def places(name: str, count: int) -> Cell:
    """The cell with so many digits behind the point."""
    return lambda row: f"{float(row[name]):,.{count}f}" if row[name] else NOT_TIMED


def picture(row: Line) -> str:
    """The picture's side, and the tokens that it becomes."""
    return f"{row['side']} px, {int(row['tokens']):,} tokens"


# --- the model --------------------------------------------------------------------------------------


def speed_parts(rows: Sequence[Line]) -> list[str]:
    """Times by size and contestant; what a trace takes beside a forward pass, launched and as graphs."""

    def name(row: Line) -> str:
        return row["contestant"]

    def milliseconds(row: Line) -> str:
        median, low, high = (places(f"time_{n}ms", 2)(row) for n in ("", "low_", "high_"))
        return f"{median} ({low}–{high})"

    ratios = [
        row | {"ratio": f"{float(row['time_ms']) / float(forward['time_ms']):.2f}"}
        for row in rows
        for forward in rows
        if "-trace" in row["contestant"]
        and forward["contestant"] == row["contestant"].replace("-trace", "-forward")
        and all(forward[what] == row[what] for what in ("side", "dtype"))
    ]
    parts = ["Time, ms: median (lowest–highest).\n", grid(rows, sized, name, milliseconds)]
    if ratios:
        parts += [
            "Time of a trace over that of the forward pass beside it:\n",
            grid(ratios, sized, name, of("ratio")),
        ]
    return parts


def sized(row: Line) -> str:
    return f"{picture(row)}, {row['dtype']}"


# --- a million tokens -------------------------------------------------------------------------------


def million_parts(rows: Sequence[Line]) -> list[str]:
    """A table for each run: a row a stage."""
    parts = []
    for run in dict.fromkeys(map(run_name, rows)):
        own = [row for row in rows if run_name(row) == run]
        cells = {
            "stage": of("stage"),
            "seconds": places("seconds", 3),
            "peak, GB": places("peak_gb", 2),
            "largest error": of("error"),
            "sums off by": of("sum_off"),
        }
        parts += [f"{run}:\n", listing(own, cells)]
    return parts


def run_name(row: Line) -> str:
    return (
        f"{row['model']}, {picture(row)}, {row['layers']} layers of {row['heads']} heads, "
        f"{row['implementation']} in {row['dtype']}, layers {row['trace']}"
    )


# --- several GPUs -----------------------------------------------------------------------------------


def parallel_parts(rows: Sequence[Line]) -> list[str]:
    """A row for each run: seconds on one GPU and on all, without and with every map."""

    def both(name: str) -> Cell:
        one, split = places(f"{name}_one_s", 3), places(f"{name}_split_s", 3)
        return lambda row: f"{one(row)} → {split(row)}"

    cells = {
        "picture, layers, GPUs": lambda row: (
            f"{picture(row)}, {row['layers']} layers, {row['ranks']} GPUs"
        ),
        "trace, s": both("trace"),
        "ratio": places("trace_ratio", 2),
        "with all maps, s": both("all"),
        "their ratio": places("all_ratio", 2),
        "peak on one → each, GB": lambda row: (
            f"{places('peak_one_gb', 2)(row)} → {places('peak_split_gb', 2)(row)}"
        ),
        "rows off float64": of("float64_error"),
        "rows, columns, received off one GPU's": lambda row: ", ".join(
            of(f"{what}_difference")(row) for what in ("row", "column", "received")
        ),
        "commit": of("commit"),
    }
    return [listing(rows, cells)]


# --- FP8 --------------------------------------------------------------------------------------------


def fp8_parts(rows: Sequence[Line]) -> list[str]:
    """Errors by input and way, then speeds where any were recorded."""
    errors = [row for row in rows if not row["time_us"]]
    speeds = [row for row in rows if row["time_us"]]
    parts = []
    if errors:
        parts += [
            "Error of the output against float64 on the same bfloat16 q, k and v, relative in the 2-norm:\n",
            grid(errors, input_name, way_name, of("error")),
        ]
    if speeds:
        parts += [
            "Time, µs: median (lowest).\n",
            grid(speeds, shape_name, of("contestant"), median_and_lowest),
            "TFLOP/s:\n",
            grid(speeds, shape_name, of("contestant"), number("tflops")),
        ]
    else:
        parts.append("No speed is recorded.\n")
    return parts


def median_and_lowest(row: Line) -> str:
    return f"{number('time_us')(row)} ({number('time_low_us')(row)})"


def input_name(row: Line) -> str:
    layer = f", layer {row['layer']}" if row["layer"] else ""
    return f"{row['input']}{layer}: {shape_name(row)}"


def way_name(row: Line) -> str:
    """Who, and by the kernel or by torch."""
    return row["contestant"] + (f", {row['way']}" if row["way"] else "")


def shape_name(row: Line) -> str:
    return ", ".join(row[name] for name in ("batch", "heads", "queries", "head_dim"))


RUN = ("model", "side", "layers", "dtype", "implementation")
SECTIONS = (
    Section(
        "model_speed",
        "One forward pass of the whole of DINOv2-small, and the trace that keeps every layer, from pixels on the "
        "GPU to the result. `launched` is without CUDA graphs.",
        ("contestant", "side", "dtype"),
        speed_parts,
    ),
    Section(
        "million",
        "A picture of a million tokens: all maps of one query, and what each token receives, in every head of "
        "every layer. The total leaves out making the picture, and checking the maps against float64.",
        (*RUN, "trace", "stage"),
        million_parts,
    ),
    Section(
        "parallel",
        "A picture on one GPU and on several, by turns, layer by layer, then with every map of one query. The maps are "
        "compared as shares of the largest weight. Fewer layers than the model has are its first.",
        (*RUN, "ranks"),
        parallel_parts,
    ),
    Section(
        "fp8",
        "The FP8 study: attention in 8 bits, how far off it is and how fast.",
        ("input", "layer", "contestant", "way", "batch", "heads", "queries", "head_dim"),
        fp8_parts,
    ),
)
