"""The figures of a sweep as rows, each with its unit in the header and its source beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from app.figures.curves import CHART, Formulas, Series
from app.text.speed import TABLE
from kernels.bench.reading import Reading
from kernels.bench.run_kernels import tflops

Cell = str | int | float | bool | None
Row = dict[str, Cell]
MEGA = 1e6
FRACTIONS = tuple(
    TABLE[name] for name in TABLE if name.endswith(("_us", "_mb", "_mj")) or name == "tflops"
)
"""Columns that the screen rounds; the file has them whole."""


def rows(series: Series, formulas: Formulas) -> list[Row]:
    """A row for each reading, in their order; None where there is no figure."""
    return [
        problem_cells(reading)
        | time_cells(reading, series.source)
        | byte_cells(reading, series.source, formulas)
        | end_cells(reading)
        for reading in series.readings
    ]


def problem_cells(reading: Reading) -> Row:
    problem = reading.problem
    return {
        TABLE["implementation"]: reading.implementation,
        TABLE["direction"]: reading.direction,
        TABLE["batch"]: problem.batch,
        TABLE["heads"]: problem.heads,
        TABLE["tokens"]: problem.queries,
        TABLE["head_dim"]: problem.head_dim,
        TABLE["dtype"]: problem.dtype,
        TABLE["causal"]: problem.causal,
    }


def time_cells(reading: Reading, source: str) -> Row:
    rate = tflops(reading.problem, reading.direction, reading.time_us)
    timed, watched = reading.time_us is not None, reading.peak_bytes is not None
    return {
        TABLE["time_us"]: reading.time_us,
        TABLE["time_low_us"]: reading.time_low_us,
        TABLE["time_high_us"]: reading.time_high_us,
        TABLE["samples"]: reading.samples if timed else None,
        TABLE["time_source"]: by(source, reading.timed_by) if timed else None,
        TABLE["tflops"]: None if rate is None else round(rate, 4),
        TABLE["peak_mb"]: mega(reading.peak_bytes),
        TABLE["peak_source"]: by(source, reading.peak_by) if watched else None,
    }


def byte_cells(reading: Reading, source: str, formulas: Formulas) -> Row:
    cold, warm = reading.hbm_cold or (None, None), reading.hbm_warm or (None, None)
    known = reading.hbm_cold or reading.hbm_warm or reading.l2
    key = reading.problem, reading.implementation, reading.direction
    return {
        TABLE["formula_mb"]: mega(formulas.get(key)),
        TABLE["counted_mb"]: mega(sum(reading.counted) if reading.counted else None),
        TABLE["cold_read_mb"]: mega(cold[0]),
        TABLE["cold_written_mb"]: mega(cold[1]),
        TABLE["warm_read_mb"]: mega(warm[0]),
        TABLE["warm_written_mb"]: mega(warm[1]),
        TABLE["l2_mb"]: mega(sum(reading.l2) if reading.l2 else None),
        TABLE["bytes_source"]: source if known else None,
    }


def end_cells(reading: Reading) -> Row:
    return {
        TABLE["energy_mj"]: reading.energy_mj,
        TABLE["busy"]: reading.busy or None,
        TABLE["refused"]: " ".join(dict.fromkeys(reading.refused.values())) or None,
    }


def by(source: str, way: str) -> str:
    return TABLE["by"].format(source=source, by=CHART.get(f"by_{way}", way)) if way else source


def mega(nbytes: float | None) -> float | None:
    """Bytes as 10^6 bytes; six decimals keep each byte."""
    return None if nbytes is None else round(nbytes / MEGA, 6)


def filled(found: Sequence[Row]) -> list[str]:
    """The columns that hold anything."""
    names = list(found[0]) if found else []
    return [name for name in names if any(row[name] is not None for row in found)]


def as_csv(found: Sequence[Row], columns: Sequence[str], series: Series) -> bytes:
    """The same rows and columns as on the screen, and for each the machine, its versions and the date."""
    origins = [origin(reading) for reading in series.readings]
    file = io.StringIO()
    writer = csv.DictWriter(file, [*columns, *origin_names()], lineterminator="\n")
    writer.writeheader()
    for row, where in zip(found, origins, strict=True):
        writer.writerow({name: row[name] for name in columns} | where)
    return file.getvalue().encode()


def origin(reading: Reading) -> Row:
    return dict(zip(origin_names(), (reading.machine, reading.versions, reading.when), strict=True))


def origin_names() -> tuple[str, str, str]:
    return TABLE["machine"], TABLE["versions"], TABLE["when"]
