"""Measurements that the pages start: one worker process at a time, first come first served.

No Streamlit here. A page starts a `Job`, reads it from any thread while it goes on, and may stop it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from app.measurement import Failed, Measurement, Surroundings
from app.text.jobs import DOING, WENT_WRONG
from app.worker import COMMAND, Worker
from kernels import Problem
from kernels.bench.asked import ROUNDS, WANTS, Asked, Entry, Want, answered, in_order, merged
from kernels.bench.reading import Reading
from kernels.traffic.roofs import Roofs

__all__ = ["WANTS", "Entry", "Job", "Jobs", "Kind", "Request", "Snapshot", "State", "Want"]

Kind = Literal["panel", "sweep"]
State = Literal["waiting", "running", "done", "stopped", "failed"]
OVER: tuple[State, ...] = ("done", "stopped", "failed")

ABANDONED_S = 60.0
"""A sweep that no page has touched for so long is stopped."""
MOST_KEPT = 512
"""Jobs that `latest` finds, and readings that `known` finds; the oldest are forgotten."""
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Request:
    """What to measure. `wants` are measured in the order of WANTS, each for all entries."""

    kind: Kind
    entries: tuple[Entry, ...]
    wants: tuple[Want, ...] = ("time", "memory")
    rounds: int = ROUNDS  # samples of each time; slow entries get fewer
    try_anyway: bool = False  # also what is predicted not to fit, or to take long
    roofs: bool = False  # this machine's own bandwidth and arithmetic too

    def __post_init__(self) -> None:
        in_order(self.wants)  # raises a ValueError for what cannot be measured


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


class Stopped(Exception):
    """Somebody, or nobody, wants no more of it."""


class Job:
    """One request on its way. Every property is the newest; `snapshot` takes all of them at one moment."""

    def __init__(self, line: Jobs, request: Request) -> None:
        self.request = request
        self._line = line
        self._touched = line.clock()
        self._worker: Worker | None = None
        self._shown = Snapshot(
            readings=tuple(Reading(*entry) for entry in request.entries), sentence=DOING["start"]
        )

    @property
    def snapshot(self) -> Snapshot:
        """All of the below at once. Reading it does not count as `touch`."""
        with self._line.changed:
            return replace(self._shown, ahead=self._line.ahead_of(self))

    @property
    def state(self) -> State:
        return self._shown.state

    @property
    def over(self) -> bool:
        """Done, stopped or failed: nothing changes any more."""
        return self.state in OVER

    @property
    def ahead(self) -> int:
        return self.snapshot.ahead

    @property
    def progress(self) -> float:
        return self._shown.progress

    @property
    def sentence(self) -> str:
        return self._shown.sentence

    @property
    def readings(self) -> tuple[Reading, ...]:
        return self._shown.readings

    @property
    def roofs(self) -> Roofs | None:
        return self._shown.roofs

    @property
    def trouble(self) -> str | None:
        return self._shown.trouble

    def stop(self) -> None:
        """Leave the line, or kill the worker with all that it started; returns when it has gone.

        What was measured before stays in `readings`. A job that is over stays as it is.
        """
        self.finish("stopped")
        if self._worker is not None:
            self._worker.end()

    def touch(self) -> None:
        """The page is still there. A sweep that nobody has touched for a minute is stopped."""
        self._touched = self._line.clock()

    # --- for the line -----------------------------------------------------------------------------

    @property
    def seconds_left(self) -> float:
        """Until it counts as abandoned; a panel's job never does, for it is short and all can use it."""
        if self.request.kind == "panel":
            return math.inf
        return self._touched + ABANDONED_S - self._line.clock()

    def show(self, **changes: Any) -> None:
        """What has changed; nothing changes in a job that is over."""
        with self._line.changed:
            if self.over:
                return
            self._shown = replace(self._shown, **changes)
            for reading in changes.get("readings", ()):
                self._line.learn(reading)

    def finish(self, state: State, trouble: str | None = None) -> None:
        """The last change; it also leaves the line."""
        with self._line.changed:
            if not self.over:
                progress = 1.0 if state == "done" else self._shown.progress
                self._shown = replace(
                    self._shown,
                    state=state,
                    progress=progress,
                    sentence=DOING[state],
                    trouble=trouble,
                )
            self._line.leave(self)

    def abandon(self) -> None:
        """Stop it because nobody looks."""
        self.finish("stopped", WENT_WRONG["abandoned"].format(seconds=round(ABANDONED_S)))

    def measure(self, command: Sequence[str], others_at_work: Callable[[], int]) -> None:
        """All of it, in this thread."""
        asked = Asked(
            self.readings,
            in_order(self.request.wants),
            self.request.rounds,
            self.request.try_anyway,
            self.request.roofs,
        )

        def start(asked: Asked) -> Worker:
            seconds_left()
            self._worker = Worker(asked, command)
            if self.over:  # stopped before there was anything to kill
                self._worker.end()
            return self._worker

        def seconds_left() -> float:
            if self.over:
                raise Stopped
            left = self.seconds_left
            if left <= 0:
                self.abandon()
                raise Stopped
            return left

        around = Surroundings(start, others_at_work, self.show, seconds_left)
        try:
            self.finish("done", Measurement(asked, around).run())
        except Stopped:
            pass
        except Failed as reason:
            self.finish("failed", str(reason))
        except Exception:
            logging.getLogger(__name__).exception("A measurement failed.")
            self.finish("failed", WENT_WRONG["inside"])


class Jobs:
    """The line of all visitors' measurements. One for each server process: `compute.shared().jobs`.

    `others_at_work` gives a number that differs between two calls whenever other work went on between
    them; a reading measured meanwhile is marked busy.
    """

    def __init__(
        self,
        others_at_work: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.clock, self.changed = clock, threading.Condition()
        self._others_at_work, self._command = others_at_work, command
        self._line: list[Job] = []  # the first of them may be running
        self._latest: OrderedDict[tuple[str, Kind], Job] = OrderedDict()
        self._known: OrderedDict[Entry, Reading] = OrderedDict()
        self._thread: threading.Thread | None = None

    def start(self, owner: str, request: Request) -> Job:
        """Put it into the line; an earlier job of this owner and kind that is not over is stopped."""
        earlier = self.latest(owner, request.kind)
        if earlier is not None:
            earlier.stop()
        job = Job(self, request)
        with self.changed:
            keep(self._latest, (owner, request.kind), job)
            self._line.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True, name="jobs")
                self._thread.start()
            self.changed.notify_all()
        return job

    def latest(self, owner: str, kind: Kind) -> Job | None:
        """The owner's last job of this kind, over or not."""
        with self.changed:
            return self._latest.get((owner, kind))

    def known(self, problem: Problem, implementation: str, direction: str) -> Reading | None:
        """The newest reading of any visitor's on this machine since the server started, or None.

        What its last measurement did not ask for stands as it was measured before.
        """
        with self.changed:
            return self._known.get((problem, implementation, direction))

    # --- for the jobs -----------------------------------------------------------------------------

    def ahead_of(self, job: Job) -> int:
        """How many are before it in the line, without those that nobody waits for any more."""
        if job not in self._line:
            return 0
        before = self._line[: self._line.index(job)]
        return sum(1 for one in before if one.seconds_left > 0)

    def leave(self, job: Job) -> None:
        if job in self._line:
            self._line.remove(job)
            self.changed.notify_all()

    def learn(self, reading: Reading) -> None:
        """Keep what is new in it."""
        key = (reading.problem, reading.implementation, reading.direction)
        if not any(answered(reading, want) for want in WANTS):
            return
        with self.changed:
            keep(self._known, key, merged(reading, self._known.get(key)))

    def _serve(self) -> None:
        """One job after another, for ever."""
        while True:
            with self.changed:
                while not self._line:
                    self.changed.wait()
                job = self._line[0]
                if job.seconds_left <= 0:
                    job.abandon()
                    continue
                job.show(state="running")
            job.measure(self._command, self._others_at_work)


def keep(store: OrderedDict[Any, Kept], key: object, value: Kept) -> None:
    """As the newest; the oldest is forgotten where there are too many."""
    store[key] = value
    store.move_to_end(key)
    while len(store) > MOST_KEPT:
        store.popitem(last=False)
