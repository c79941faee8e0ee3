"""What the tables of docs/performance.md are made of: lines of CSV in, Markdown out."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

NOT_TIMED = "–"

Line = dict[str, str]
Cell = Callable[[Line], str]


def read(path: Path) -> list[Line]:
    """The lines of a file of results; none where it is missing."""
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def latest(rows: Iterable[Line], key: Sequence[str]) -> list[Line]:
    """Of the rows with the same key the last one, where the first one stood."""
    found = {}
    for row in rows:
        found[tuple(row[name] for name in key)] = row
    return list(found.values())


def recorded(rows: Sequence[Line]) -> str:
    """Where these figures come from."""

    def all_of(name: str) -> str:
        return ", ".join(sorted({row[name] for row in rows if row[name]}))

    driver = f"driver {all_of('driver')}, " if all_of("driver") else ""
    triton = f"Triton {all_of('triton')}, " if all_of("triton") else ""
    return (
        f"Recorded: {driver}torch {all_of('torch')}, {triton}commit {all_of('commit')}, "
        f"{all_of('date')}."
    )


def three_digits(number: str) -> str:
    """Three digits, or all before the point: 4.63, 117, 21,905."""
    value = float(number)
    digits = next((2 - power for power in (2, 1) if abs(value) >= 10**power), 2)
    return f"{value:,.{digits}f}"


def grid(rows: Sequence[Line], row_of: Cell, column_of: Cell, cell: Cell) -> str:
    """A Markdown table, rows and columns in the order in which they first come."""
    columns = list(dict.fromkeys(map(column_of, rows)))
    cells = {(row_of(row), column_of(row)): cell(row) for row in rows}
    names = dict.fromkeys(map(row_of, rows))
    lines = ([name, *(cells.get((name, column), "") for column in columns)] for name in names)
    return markdown(["", *columns], lines)


def listing(rows: Sequence[Line], cells: dict[str, Cell]) -> str:
    """A Markdown table with a row for each of `rows`, and a column for each of `cells`."""
    return markdown(list(cells), ([cell(row) for cell in cells.values()] for row in rows))


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all but the first column stand right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines)) + "\n"
