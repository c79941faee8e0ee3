"""What was recorded on a GPU and committed, as readings: for a screen where nothing can be measured."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels.bench.reading import Bytes, Reading
from kernels.bench.record import RESULTS
from kernels.problem import Problem
from kernels.registry import IMPLEMENTATIONS
from kernels.traffic.ledger import DIRECTIONS
from kernels.traffic.roofs import Roofs

TIMES = ("picture_sizes.csv", "speed_vs_tokens.csv")
"""Times and peaks: the first of these that is there. Clocks differ between runs, so one run it is."""

TRAFFIC, ROOFS = "traffic.csv", "roofs.csv"
Line = Mapping[str, str]
Key = tuple[Problem, str, str, str]  # and the machine


def recorded(folder: Path = RESULTS) -> list[Reading]:
    """The newest recorded reading of each problem, implementation and direction on a GPU.

    Source of each figure: recorded, on `machine`, with `versions`, on the day `when`. A file that is
    missing or that cannot be read whole gives nothing.
    """
    found: dict[Key, Reading] = {}
    times = next((folder / name for name in TIMES if (folder / name).exists()), folder / TIMES[0])
    for reading in readings_of(times):
        found[key_of(reading)] = reading
    for reading in readings_of(folder / TRAFFIC):
        key = key_of(reading)
        found[key] = joined(found[key], reading) if key in found else reading
    return list(found.values())


def recorded_roofs(machine: str, folder: Path = RESULTS) -> Roofs | None:
    """The newest roofs that were recorded on this machine; None where there are none that can be read."""
    try:
        with (folder / ROOFS).open(newline="", encoding="utf-8") as file:
            own = [line for line in csv.DictReader(file, strict=True) if line["machine"] == machine]
            return roofs_of(own[-1]) if own else None
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return None


def roofs_of(line: Line) -> Roofs:
    """Raises:
    ValueError, KeyError, TypeError: a value is missing or makes no sense.
    """
    memory, arithmetic = number(line["bytes_per_s"]), number(line["flops_per_s"])
    if not memory or not arithmetic:
        raise ValueError("a roof is missing")
    return Roofs(memory, arithmetic, line["dtype"], line["machine"], line["when"])


def readings_of(path: Path) -> list[Reading]:
    """A reading for each line about an implementation on a GPU; none where the file is missing or broken."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return read(csv.DictReader(file, strict=True))
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return []


def read(lines: Iterable[Line]) -> list[Reading]:
    """The readings of a file's lines, whichever of the two kinds of columns it has.

    Raises:
        ValueError, KeyError, TypeError: a value or a column is missing or makes no sense.
    """
    found = []
    for line in lines:
        if None in line:
            raise ValueError("a line has more values than columns")
        name = line["contestant"] if "contestant" in line else line["implementation"]
        known = name in IMPLEMENTATIONS and line["direction"] in DIRECTIONS
        fill = measured_columns if "contestant" in line else traffic_columns
        figures = fill(line)
        # What a formula says is not recorded but worked out, so such a line leaves no figure.
        if known and figures and not line["machine"].startswith("CPU"):
            found.append(
                Reading(
                    problem=problem_of(line),
                    implementation=name,
                    direction=line["direction"],
                    machine=line["machine"],
                    when=line["date"],
                    versions=versions_of(line),
                    **figures,
                )
            )
    return found


def measured_columns(line: Line) -> dict[str, Any]:
    """Time and peak, from the columns of the kernels' recipes."""
    peak_mb = number(line["peak_mb"])
    return {
        "time_us": number(line["time_us"]),
        "time_low_us": number(line["time_low_us"]),
        "time_high_us": number(line["time_high_us"]),
        "samples": int(line["samples"]),
        "timed_by": line["timed_by"],
        "peak_bytes": None if peak_mb is None else round(peak_mb * 1e6),
        "peak_by": "" if peak_mb is None else "allocator",
        "refused": {"time": line["failed"]} if line["failed"] else {},
    }


def traffic_columns(line: Line) -> dict[str, Any]:
    """Bytes, from the columns of traffic.csv; nothing of a line that holds a formula's."""
    kind = {
        ("formula", ""): "",
        ("counted", ""): "counted",
        ("measured", "cold"): "hbm_cold",
        ("measured", "warm"): "hbm_warm",
    }[line["source"], line["cache"]]
    if not kind:
        return {}
    if line["failed"]:
        return {"refused": {"counted" if kind == "counted" else "hbm": line["failed"]}}
    found: dict[str, Any] = {kind: pair(line["bytes_read"], line["bytes_written"])}
    if line["l2_read"]:
        found["l2"] = pair(line["l2_read"], line["l2_written"])
    return found


def joined(old: Reading, new: Reading) -> Reading:
    """Both readings of one problem as one; where they speak of the same figure, the new one holds."""
    names = ("counted", "hbm_cold", "hbm_warm", "l2")
    news = {name: getattr(new, name) for name in names if getattr(new, name) is not None}
    return replace(
        old,
        **news,
        refused={**old.refused, **new.refused},
        when=both(old.when, new.when),
        versions=versions_together((old.versions, new.versions)),
    )


def both(old: str, new: str) -> str:
    """One text, or both of them where they differ."""
    return old if new in old.split("; ") else f"{old}; {new}"


def versions_together(texts: Iterable[str]) -> str:
    """ "torch 2.11, commit a" and "torch 2.11, commit b" as one text: "torch 2.11, commit a and b"."""
    found: dict[str, dict[str, None]] = {}
    for part in (part for text in texts for part in text.split(", ") if part):
        name, _, values = part.partition(" ")
        found.setdefault(name, {}).update(dict.fromkeys(values.split(" and ")))
    return ", ".join(f"{name} {' and '.join(values)}" for name, values in found.items())


def problem_of(line: Line) -> Problem:
    heads, kv_heads = int(line["heads"]), int(line["kv_heads"])
    return Problem(
        batch=int(line["batch"]),
        heads=heads,
        queries=int(line["queries"]),
        keys=int(line["keys"]),
        head_dim=int(line["head_dim"]),
        dtype=line["dtype"],
        causal={"True": True, "False": False}[line["causal"]],
        kv_heads=None if kv_heads == heads else kv_heads,
    )


def versions_of(line: Line) -> str:
    named = ("driver", "torch", "triton", "commit")
    return ", ".join(f"{name} {line[name]}" for name in named if line[name])


def key_of(reading: Reading) -> Key:
    return reading.problem, reading.implementation, reading.direction, reading.machine


def number(text: str) -> float | None:
    """The number, or None where the cell is empty.

    Raises:
        ValueError: it is none, or not one that can be measured.
    """
    found = float(text) if text else None
    if found is not None and not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{text} cannot have been measured")
    return found


def pair(read: str, written: str) -> Bytes:
    return int(read), int(written)
