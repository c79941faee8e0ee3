"""Write the tables of docs/performance.md from the files in results/: the latest row of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from kernels.bench.judge import problem_of
from kernels.bench.recipes import RECIPES, KernelRecipe, Recipe, TrafficRecipe, ViewerRecipe
from kernels.bench.record import RESULTS, BenchError
from kernels.bench.report_model import model_parts
from kernels.bench.report_tables import (
    NOT_TIMED,
    Line,
    grid,
    latest,
    read,
    recorded,
    three_digits,
)
from kernels.problem import Problem
from kernels.traffic import formula
from kernels.traffic.ledger import Direction

PAGE = Path(__file__).parents[2] / "docs/performance.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
WAYS = ("read", "written")
REQUESTS, ROOFS, SM = "l2_requests.csv", "roofs.csv", "sm_90"
REQUEST_COLUMNS = {
    "formula": "",
    "asked of L1": "asked_of_l1",
    "asked of L2": "asked_of_l2",
    "looked up in L2": "looked_up_in_l2",
    "formula, written": "",
    "sent to L2": "sent_to_l2",
}
PROBLEM = ("batch", "heads", "kv_heads", "queries", "keys", "head_dim", "dtype", "causal")


def write(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Bring the page up to date."""
    page.write_text(filled(page.read_text(), results))


def filled(text: str, results: Path) -> str:
    """The page with its tables made anew.

    Raises:
        BenchError: the page has not both marks, once each and in order.
    """
    if not re.fullmatch(f"(?s).*{BEGIN}.*{END}.*", text) or text.count(BEGIN) + text.count(END) > 2:
        raise BenchError(f"The page must hold {BEGIN} and, below it, {END}.")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables(results)}\n{END}{after}"


def tables(results: Path) -> str:
    """A section for each recipe, and in it a part for each machine; then one for each other file."""
    parts = []
    for name, recipe in RECIPES.items():
        rows = read(results / f"{name}.csv")
        key, parts_of = LAYOUTS[type(recipe)]
        parts.append(f"### {name}\n\n{recipe.about}\n")
        if not rows:
            parts.append("Nothing is recorded yet.\n")
        for machine in dict.fromkeys(row["machine"] for row in rows):
            own = latest([row for row in rows if row["machine"] == machine], key)
            parts.append(f"#### {name} on {machine}\n\n{recorded(own)}\n")
            parts += parts_of(recipe, own)
    parts += model_parts(results) + request_parts(results / REQUESTS) + roof_parts(results / ROOFS)
    return "\n".join(parts)


# --- recipes of kernels -----------------------------------------------------------------------------


def kernel_parts(recipe: Recipe, rows: Sequence[Line]) -> list[str]:
    """Times, then rates, or peaks where memory was asked for; then what failed."""
    if isinstance(recipe, KernelRecipe) and recipe.measures == "memory":
        parts = ["Peak, MB:\n", grid(rows, problem_name, column_name, peak)]
    else:
        parts = [
            "Time, µs: median (lowest–highest).\n",
            grid(rows, problem_name, column_name, time),
        ]
        if any(row["tflops"] for row in rows):
            parts += ["TFLOP/s:\n", grid(rows, problem_name, column_name, rate)]
        if any(row["timed_by"] == "events" for row in rows):
            parts.append(
                "\\* could not be captured: timed launch by launch, Python's share included.\n"
            )
    failed = [
        f"- {column_name(r)} at {problem_name(r)}: {r['failed']}" for r in rows if r["failed"]
    ]
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(failed) + "\n")
    return parts


def problem_name(row: Line) -> str:
    """batch, heads, tokens, head_dim, and what is out of the ordinary."""
    tokens = row["queries"] if row["queries"] == row["keys"] else f"{row['queries']}×{row['keys']}"
    heads = row["heads"] if row["heads"] == row["kv_heads"] else f"{row['heads']}/{row['kv_heads']}"
    causal = ", causal" if row["causal"] == "True" else ""
    return f"{row['batch']}, {heads}, {tokens}, {row['head_dim']}, {row['dtype']}{causal}"


def column_name(row: Line) -> str:
    plain = row["direction"] in ("forward", "rebuild")
    return row["contestant"] + ("" if plain else f" {row['direction']}")


def time(row: Line) -> str:
    if not row["time_us"]:
        return NOT_TIMED
    median, low, high = (three_digits(row[f"time_{n}us"]) for n in ("", "low_", "high_"))
    mark = "\\*" if row["timed_by"] == "events" else ""
    return f"{median} ({low}–{high}){mark}"


def rate(row: Line) -> str:
    return three_digits(row["tflops"]) if row["tflops"] else NOT_TIMED


def peak(row: Line) -> str:
    return three_digits(row["peak_mb"]) if row["peak_mb"] else NOT_TIMED


# --- the recipe of bytes ----------------------------------------------------------------------------


def traffic_parts(_: Recipe, rows: Sequence[Line]) -> list[str]:
    """Bytes read and written, MB: as many columns as there are ways of knowing them."""

    def name(row: Line) -> str:
        plain = row["direction"] == "forward"
        return (
            f"{problem_name(row)}: {row['implementation']}{'' if plain else ' ' + row['direction']}"
        )

    def source(row: Line) -> str:
        return f"DRAM, {row['cache']}" if row["cache"] else row["source"]

    def both(row: Line, what: str = "bytes") -> str:
        if row["failed"]:
            return NOT_TIMED
        return " + ".join(three_digits(str(float(row[f"{what}_{w}"]) / 1e6)) for w in WAYS)

    asked = [
        dict(row, source="asked of L2", cache="")
        for row in rows
        if row["cache"] == "warm" and row["l2_read"]
    ]
    parts = ["Read + written, MB:\n", grid(rows, name, source, both)]
    if asked:
        parts += [
            "Asked of L2 by the multiprocessors, read + written, MB:\n",
            grid(asked, name, source, lambda row: both(row, "l2")),
        ]
    failed = [f"- {name(r)}, {source(r)}: {r['failed']}" for r in rows if r["failed"]]
    return parts + (["Not measured:\n\n" + "\n".join(failed) + "\n"] if failed else [])


def call_of(row: Line) -> tuple[Problem, str, Direction]:
    return problem_of(row), row["implementation"], cast(Direction, row["direction"])


def request_parts(path: Path) -> list[str]:
    """What each launch asked of L1, of L2, and what L2 looked up, beside the formula's bytes of today."""
    rows = read(path)
    if not rows:
        return []
    table: list[Line] = []
    for key in dict.fromkeys(map(call_of, rows)):
        call = [row for row in rows if call_of(row) == key]
        for row, part in zip(call, formula(*key, gpu=SM).detail, strict=True):
            figures = {"formula": part.bytes_read, "formula, written": part.bytes_written}
            for column in REQUEST_COLUMNS:
                value = figures.get(column) or int(row[REQUEST_COLUMNS[column]])
                table.append({**row, "column": column, "value": f"{value:,}"})

    def name(row: Line) -> str:
        return f"{problem_name(row)}: {row['implementation']} {row['direction']}, {row['kernel']}"

    title = f"### {path.stem}\n\nBytes read, launch by launch, and written; by other counters.\n"
    shown = grid(table, name, lambda row: row["column"], lambda row: row["value"])
    return [title, f"#### {path.stem} on {rows[0]['machine']}\n\n{recorded(rows)}\n", shown]


def roof_parts(path: Path) -> list[str]:
    """What a machine can do at most: a large copy, a large matrix product."""
    rows = read(path)
    parts = []
    for row in latest(rows, ("machine",)):
        memory, arithmetic = (float(row[name]) / 1e12 for name in ("bytes_per_s", "flops_per_s"))
        parts.append(
            f"#### roofs on {row['machine']}\n\n{recorded([row])} A large copy moved {memory:.2f} TB/s, read and "
            f"written together; a matrix product in {row['dtype']} ran at {arithmetic:.0f} TFLOP/s.\n"
        )
    return ["### roofs\n", *parts] if parts else []


# --- the recipe of whole programs -------------------------------------------------------------------


def viewer_parts(_: Recipe, rows: Sequence[Line]) -> list[str]:
    """Times and peaks by the size of the picture."""

    def size(row: Line) -> str:
        return f"{row['side']} px, {row['dtype']}"

    def name(row: Line) -> str:
        return row["contestant"]

    def milliseconds(row: Line) -> str:
        if not row["time_ms"]:
            return row["failed"] or NOT_TIMED
        return f"{float(row['time_ms']):,.1f} ({float(row['time_low_ms']):,.1f}–{float(row['time_high_ms']):,.1f})"

    return [
        "Time, ms: median (lowest–highest).\n",
        grid(rows, size, name, milliseconds),
        "Peak, MB:\n",
        grid(rows, size, name, peak),
    ]


LAYOUTS = {
    KernelRecipe: (("contestant", "direction", *PROBLEM), kernel_parts),
    TrafficRecipe: (("implementation", "direction", "source", "cache", *PROBLEM), traffic_parts),
    ViewerRecipe: (("contestant", "side"), viewer_parts),
}
"""What tells the rows of a recipe apart, and what makes tables of them."""
