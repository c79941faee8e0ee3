"""Another program, watched: it ends in time, and nothing that it started outlives it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from kernels.bench.process_tree import kill_tree

ROOT = Path(__file__).parents[2]
"""The folder from which `python -m kernels...` finds us."""


@dataclass(frozen=True)
class Ended:
    """How a program ended. `code` is None after the time-out, negative after a signal, as in `subprocess`."""

    code: int | None
    stdout: str
    stderr: str


def run(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_s: float
) -> Ended:
    """Run it to its end or to the time-out; what it prints goes through files in `folder`, a folder of its own.

    Raises:
        OSError: it cannot be started.
    """
    out, err = folder / "stdout", folder / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=dict(environment),
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also when this thread is interrupted, or the program left others behind
            end_tree(process)
    return Ended(code, out.read_text(errors="replace"), err.read_text(errors="replace"))


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill the program, all below it, and all of its session; return when they are gone."""
    kill_tree(process.pid)
    process.wait()
    # Those whose parents ended before them are below nobody now, but their session is still ours.
    for other in psutil.pids() if hasattr(os, "getsid") else ():
        with suppress(OSError):
            if os.getsid(other) == process.pid:
                kill_tree(other)
