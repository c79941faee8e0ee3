"""One request, measured to its end by as many workers as it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.text.jobs import DOING, ENTRY, WENT_WRONG
from app.worker import Ended, Garbage, Silent, Worker
from kernels.bench.asked import Asked, answered, refuse
from kernels.bench.reading import Reading
from kernels.traffic.roofs import Roofs

STEP_S = 300.0
"""The longest that a step may take: the start of a process, or one entry's answer."""
TOGETHER_S = 900.0
"""The same for a run of the profiler, which takes all entries together."""
DISTURBED = ("time", "hbm", "energy")
"""What others' work on this machine changes."""


class Failed(RuntimeError):
    """The sentence that says why the rest was not measured."""


@dataclass(frozen=True)
class Step:
    """What the worker does now."""

    what: str = "start"
    indices: tuple[int, ...] = ()
    stirred: int = 0  # others' work, when it began


@dataclass(frozen=True)
class Surroundings:
    """What a measurement needs of the app around it."""

    start: Callable[[Asked], Worker]  # may raise OSError, or whatever ends the measurement
    others_at_work: Callable[[], int]
    show: Callable[..., None]  # fields of a Snapshot that have changed
    seconds_left: Callable[[], float]  # until nobody wants it any more; below 0 it raises


class Measurement:
    """The state of one request on its way."""

    def __init__(self, asked: Asked, around: Surroundings) -> None:
        self.readings = list(asked.readings)
        self.asked, self.around = asked, around
        self.roofs_left = asked.roofs
        self.trouble: str | None = None
        self.step = Step()

    def run(self) -> str | None:
        """Until everything is measured or refused -> what could not be had beside the readings, or None.

        Raises:
            Failed: the rest cannot be measured.
        """
        for _ in range(len(self.readings) + 3):  # each worker that dies takes one entry with it
            if self.over:
                return self.trouble
            self.with_one_worker()
        if not self.over:
            raise Failed(WENT_WRONG["again_and_again"])
        return self.trouble

    @property
    def over(self) -> bool:
        return self.done == self.whole

    @property
    def whole(self) -> int:
        """Answers that are wanted."""
        return len(self.readings) * len(self.asked.wants) + self.asked.roofs

    @property
    def done(self) -> int:
        """Answers that are there."""
        found = [answered(one, want) for one in self.readings for want in self.asked.wants]
        return sum(found) + (self.asked.roofs and not self.roofs_left)

    def with_one_worker(self) -> None:
        """Until it is done, or until it died and its entry has the sentence for it."""
        self.begin(Step())
        asked = replace(self.asked, readings=tuple(self.readings), roofs=self.roofs_left)
        try:
            worker = self.around.start(asked)
        except OSError as fault:
            raise Failed(WENT_WRONG["not_started"]) from fault
        try:
            while self.take(self.listen(worker)):
                pass
        except Ended as end:
            self.around.seconds_left()  # raises where we ended it ourselves
            worker.log_last_words()
            how, numbers = said_of(end.code)
            self.blame(how, **numbers)
        except Garbage:
            self.blame("garbage")
        except Silent:
            self.blame("silent", seconds=round(self.patience_s()))
        finally:
            worker.end()

    def listen(self, worker: Worker) -> Mapping[str, Any]:
        """The next message.

        Raises:
            Silent, Ended, Garbage: there is none.
        """
        until = time.monotonic() + self.patience_s()
        while True:
            left = until - time.monotonic()
            try:
                return worker.next(min(left, self.around.seconds_left()))
            except Silent:
                if time.monotonic() >= until:
                    raise

    def patience_s(self) -> float:
        return TOGETHER_S if self.step.what == "hbm" else STEP_S

    def take(self, message: Mapping[str, Any]) -> bool:
        """Do what it says; False where it was the last.

        Raises:
            Garbage: it is no message of ours.
        """
        try:
            if "begin" in message:
                what, indices = message["what"], tuple(message["together"])
                _ = DOING[what], [self.readings[index] for index in indices]
                self.begin(Step(what, indices, self.around.others_at_work()))
            elif "reading" in message:
                self.put(message["index"], Reading.from_json(message["reading"]))
            elif "roofs" in message:
                self.roofs_left = False
                self.trouble = message.get("sentence") or self.trouble
                if message["roofs"] is not None:
                    self.around.show(roofs=Roofs(**message["roofs"]))
            elif message["done"]:
                return False
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise Garbage from None
        return True

    def begin(self, step: Step) -> None:
        self.step = step
        self.around.show(sentence=DOING[step.what].format(entry=self.named(step)))

    def put(self, index: int, reading: Reading) -> None:
        """Into its place, marked where others worked meanwhile."""
        before = self.readings[index]
        disturbed = (
            self.step.what in DISTURBED and self.around.others_at_work() != self.step.stirred
        )
        self.readings[index] = replace(reading, busy=before.busy or disturbed)
        self.tell()

    def tell(self) -> None:
        share = self.done / self.whole if self.whole else 1.0
        self.around.show(readings=tuple(self.readings), progress=share)

    def blame(self, how: str, **numbers: int) -> None:
        """The worker is gone: what it was at is not tried again, the rest is.

        Raises:
            Failed: it was at nothing yet.
        """
        if self.step.what == "start":
            raise Failed(WENT_WRONG["not_started"])
        sentence = WENT_WRONG[how].format(what=self.named(self.step), **numbers)
        if self.step.what == "roofs":
            self.roofs_left, self.trouble = False, sentence
        # What was measured together goes on with its other questions; one alone is not asked any more.
        alone = len(self.step.indices) == 1
        for index in self.step.indices:
            wants = self.asked.wants if alone else (self.step.what,)
            self.readings[index] = refuse(self.readings[index], wants, sentence)
        self.tell()

    def named(self, step: Step) -> str:
        """The entry, or the first of several, in words."""
        if not step.indices:
            return WENT_WRONG["roofs"]
        one = self.readings[step.indices[0]]
        return ENTRY.format(
            name=one.implementation, direction=one.direction, tokens=one.problem.queries
        )


def said_of(code: int) -> tuple[str, dict[str, int]]:
    """Which sentence, and its number, for a process that ended by itself."""
    if code == -9:
        return "killed", {}
    return ("crashed", {"number": -code}) if code < 0 else ("ended", {"number": code})
