"""Who measured it: every row of a result file names its machine, versions, commit and date."""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from kernels.problem import Problem

RESULTS = Path(__file__).parent / "results"
Row = dict[str, object]


class BenchError(RuntimeError):
    """Why nothing was measured, in one sentence."""


def say(sentence: str) -> None:
    """Progress goes to stderr, so that stdout holds results alone."""
    print(sentence, file=sys.stderr, flush=True)


def machine(measured_commit: str | None = None) -> dict[str, str]:
    """The columns that say where and when a row was measured.

    `measured_commit` names the commit where the tree is a copy without its history.
    """
    gpu = torch.cuda.is_available()
    return {
        "machine": torch.cuda.get_device_name() if gpu else f"CPU, {cpu_name()}",
        "driver": driver() if gpu else "",
        "torch": torch.__version__,
        "triton": version("triton"),
        "transformers": version("transformers"),
        "python": platform.python_version(),
        "commit": measured_commit or commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }


def significant(value: float, digits: int = 5) -> float:
    """Rounded to so many digits, however small: figures of one row agree with each other."""
    return float(f"{value:.{digits}g}")


def problem_columns(problem: Problem) -> Row:
    """The columns that say what was measured; `judge.problem_of` is the inverse."""
    return {
        "batch": problem.batch,
        "heads": problem.heads,
        "kv_heads": problem.kv_heads or problem.heads,
        "queries": problem.queries,
        "keys": problem.keys,
        "head_dim": problem.head_dim,
        "dtype": problem.dtype,
        "causal": problem.causal,
    }


def cpu_name() -> str:
    """The processor's model, and how many of its cores torch uses."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    return f"{name}, {torch.get_num_threads()} threads"


def driver() -> str:
    """NVIDIA's driver, as its own tool names it: once for each GPU, and it is the same for all."""
    named = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return named.partition("\n")[0]


def commit() -> str:
    """The commit that was measured; "+" where the tree held changes to the code."""
    head = output_of("git", "rev-parse", "--short", "HEAD")
    changed = output_of("git", "status", "--porcelain", "--", "kernels", "vit")
    changed = [line for line in changed.splitlines() if "results/" not in line]
    return (head + ("+" if changed else "")) if head else ""


def output_of(*command: str) -> str:
    """What a program prints, or nothing where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def append(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Add rows to a CSV file; the first row's keys are its header.

    Raises:
        ValueError: the file's columns are not those of the rows.
    """
    rows = list(rows)
    header = list(rows[0])
    new = not path.exists()
    if not new:
        with path.open(newline="") as file:
            if next(csv.reader(file)) != header:
                raise ValueError(f"{path} has other columns; move it away or choose another --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def table(rows: Iterable[Mapping[str, object]], names: Sequence[str]) -> str:
    """These columns of the rows, aligned."""
    lines = [tuple(names), *(tuple(str(row[name]) for name in names) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
