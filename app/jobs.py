"""Measurements that the pages start: one worker process at a time, first come first served.

No Streamlit here. A page starts a `Job`, reads it from any thread while it goes on, and may stop it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernels import Problem
from kernels.bench.reading import Reading

if TYPE_CHECKING:
    from kernels.traffic.roofs import Roofs  # pyright: ignore[reportMissingImports]

Kind = Literal["panel", "sweep"]
State = Literal["waiting", "running", "done", "stopped", "failed"]
Want = Literal["time", "memory", "counted", "hbm", "energy"]
Entry = tuple[Problem, str, str]
"""Problem, implementation, direction."""

WANTS: tuple[Want, ...] = ("time", "memory", "counted", "hbm", "energy")


@dataclass(frozen=True)
class Request:
    """What to measure. `wants` are measured in the order of WANTS, each for all entries."""

    kind: Kind
    entries: tuple[Entry, ...]
    wants: tuple[Want, ...] = ("time", "memory")
    rounds: int = 9  # samples of each time; slow entries get fewer
    try_anyway: bool = False  # also what is predicted not to fit, or to take long
    roofs: bool = False  # this machine's own bandwidth and arithmetic too


@dataclass(frozen=True)
class Snapshot:
    """A job at one moment; nothing in it changes afterwards."""

    state: State = "waiting"
    ahead: int = 0  # jobs before this one in the line; 0 once it runs
    progress: float = 0.0  # 0 to 1
    sentence: str = ""  # what is being done now
    readings: tuple[Reading, ...] = ()  # one for each entry, in their order, filled as it goes
    roofs: Roofs | None = None
    trouble: str | None = None  # why it failed, or what part of it could not be had


class Job:
    """One request on its way. Every property is the newest; `snapshot` takes all of them at one moment."""

    request: Request

    @property
    def snapshot(self) -> Snapshot:
        """All of the below at once. Reading it does not count as `touch`."""
        raise NotImplementedError

    @property
    def state(self) -> State:
        return self.snapshot.state

    @property
    def over(self) -> bool:
        """Done, stopped or failed: nothing changes any more."""
        return self.state in ("done", "stopped", "failed")

    @property
    def ahead(self) -> int:
        return self.snapshot.ahead

    @property
    def progress(self) -> float:
        return self.snapshot.progress

    @property
    def sentence(self) -> str:
        return self.snapshot.sentence

    @property
    def readings(self) -> tuple[Reading, ...]:
        return self.snapshot.readings

    @property
    def roofs(self) -> Roofs | None:
        return self.snapshot.roofs

    @property
    def trouble(self) -> str | None:
        return self.snapshot.trouble

    def stop(self) -> None:
        """Leave the line, or kill the worker with all that it started; returns when it has gone.

        What was measured before stays in `readings`. A job that is over stays as it is.
        """
        raise NotImplementedError

    def touch(self) -> None:
        """The page is still there. A sweep that nobody has touched for a minute is stopped."""
        raise NotImplementedError


class Jobs:
    """The line of all visitors' measurements. One for each server process: `compute.shared().jobs`.

    `others_at_work` gives a number that differs between two calls whenever other work went on between
    them; a reading measured meanwhile is marked busy.
    """

    def __init__(
        self,
        others_at_work: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    def start(self, owner: str, request: Request) -> Job:
        """Put it into the line; an earlier job of this owner and kind that is not over is stopped."""
        raise NotImplementedError

    def latest(self, owner: str, kind: Kind) -> Job | None:
        """The owner's last job of this kind, over or not."""
        raise NotImplementedError

    def known(self, problem: Problem, implementation: str, direction: str) -> Reading | None:
        """The newest reading of any visitor's on this machine since the server started, or None."""
        raise NotImplementedError
