"""One run of `ncu` over a replay: what it is started with, and what its two outputs say together."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernels.problem import Problem
from kernels.traffic import child, ncu
from kernels.traffic.ledger import Direction
from kernels.traffic.ncu import Cache, CountersError, Launch
from kernels.triton_mode import environment_that_compiles

TOLERANCE = 0.02

Request = tuple[Problem, str, Direction]
"""Problem, implementation, direction."""


@dataclass(frozen=True)
class Calibration:
    """A copy of known size, measured in the same run. All in bytes."""

    expected: int  # to be read, and as many to be written
    read: int
    written: int

    @property
    def passed(self) -> bool:
        """Both counts are within 2 %."""
        within = TOLERANCE * self.expected
        return all(abs(got - self.expected) <= within for got in (self.read, self.written))


@dataclass(frozen=True)
class Run:
    """What came of one run: the kernels of each request, or why there are none."""

    calibration: Calibration
    parts: list[list[Launch] | CountersError]
    passes: int | None = None  # how often the kernel that needed most runs was run


def run(
    program: str,
    requests: Sequence[Request],
    cache: Cache,
    metrics: Sequence[str],
    timeout_s: float,
) -> Run:
    """Start ncu on a replay of these requests, and read what it measured.

    Raises:
        CountersError: it measured nothing that can be used.
    """
    with tempfile.TemporaryDirectory(prefix="flashlens-") as name:
        folder = Path(name)
        job, log = folder / "job.json", folder / "log.csv"
        asked = [(asdict(problem), *others) for problem, *others in requests]
        job.write_text(json.dumps({"requests": asked}))
        command = [
            *(program, *ncu.arguments(cache, metrics, log)),
            *(sys.executable, "-m", "kernels.traffic.replay", str(job)),
        ]
        # LC_ALL: figures with a point and commas. TMPDIR: ncu's own files go with ours.
        environment = environment_that_compiles() | {"LC_ALL": "C", "TMPDIR": name}
        try:
            ended = child.run(command, environment, folder, timeout_s)
        except OSError as error:
            raise CountersError(
                "failed", f"{program} cannot be started ({error.strerror}); install it again."
            ) from None
        text = log.read_text(errors="replace") if log.exists() else ""
    lines = spoken(ended.stdout)
    refuse(ended, text, finished={"done": True} in lines, timeout_s=timeout_s)
    launches = ncu.launches(text, metrics)
    found = understood(lines, launches)
    if len(found.parts) != len(requests):
        raise ncu.unreadable("another number of requests than was asked for")
    return replace(found, passes=ncu.passes(launches))


def spoken(stdout: str) -> list[dict[str, Any]]:
    """The replay's lines of JSON, among whatever else was printed."""
    found = []
    for line in stdout.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def refuse(ended: child.Ended, log: str, finished: bool, timeout_s: float) -> None:
    """
    Raises:
        CountersError: the run was refused, or did not come to its end.
    """
    if ended.code is None:
        raise CountersError(
            "time-out",
            f"Measuring took more than {timeout_s:.0f} s and was ended; choose fewer tokens, or measure when "
            "the GPU is idle.",
        )
    said = ncu.refusal(f"{log}\n{ended.stdout}\n{ended.stderr}") if ended.code >= 0 else None
    # A replay that ended early also shows ncu no kernel, and is the better reason.
    if said is not None and (finished or said.cause != "failed"):
        raise said
    if finished:
        return
    if ended.code < 0 or "terminated by signal" in log:
        name = signal.Signals(-ended.code).name if ended.code < 0 else "a signal"
        raise CountersError(
            "killed",
            f"The measurement was killed from outside ({name}), perhaps because memory ran out; measure again, "
            "or choose fewer tokens.",
        )
    if "OutOfMemoryError" in ended.stderr:
        raise CountersError(
            "out of memory",
            "The GPU has not enough free memory to measure anything; end what else runs on it.",
        )
    last = (ended.stderr.strip() or log.strip() or "it says nothing").splitlines()[-1][:200]
    raise CountersError("failed", f"The replay under ncu ended early: {last}")


def understood(lines: Sequence[dict[str, Any]], launches: Sequence[Launch]) -> Run:
    """The kernels in ncu's table, given to the requests that the replay says they belong to.

    Raises:
        CountersError: the two do not fit together.
    """
    parts = ncu.split(launches)

    def kernels_of(line: dict[str, Any]) -> list[Launch]:
        place = line["marker"]
        if place >= len(parts) or not parts[place]:
            raise ncu.unreadable("fewer kernels than were launched")
        return parts[place]

    found: list[list[Launch] | CountersError] = []
    calibration = None
    for line in lines:
        if "calibration" in line:
            calibration = calibrated(line["calibration"], kernels_of(line))
        elif "sentence" in line:
            found.append(CountersError(line["cause"], line["sentence"]))
        elif "request" in line:
            found.append(kernels_of(line))
    if calibration is None:
        raise ncu.unreadable("no calibration")
    return Run(calibration, found)


def calibrated(expected_bytes: int, kernels: Sequence[Launch]) -> Calibration:
    read = sum(one.dram_read for one in kernels)
    written = sum(one.dram_written for one in kernels)
    return Calibration(expected_bytes, read, written)
