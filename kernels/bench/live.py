"""The app's measuring process: `python -m kernels.bench.live`.

It reads one line of JSON (`asked.Asked`) and prints lines of JSON while it measures:

    {"begin": 0, "what": "time", "together": [0]}     what it does now, and the entries that it concerns
    {"reading": {...}, "index": 0}                    an entry, again and again while it fills
    {"roofs": {...}} or {"roofs": null, "sentence": "..."}
    {"done": true}

It ends when its input ends: then nobody is there who could read what it prints.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
import torch._functorch.config

from kernels.bench.allowed import Terms
from kernels.bench.answers import Answer, ask, said_of, traffic_of
from kernels.bench.asked import Asked, answered, refuse
from kernels.bench.peak import allow_no_more_than, be_first_to_go
from kernels.bench.process_tree import kill_tree
from kernels.bench.record import BenchError, machine
from kernels.bench.run_kernels import stop_if_lost
from kernels.memory import available_bytes

Tell = Callable[[dict[str, Any]], None]
LATER = "counted", "hbm", "energy"
"""What takes long, and is looked at after the roofs."""


class Session:
    """One request, step by step. `tell` gets each message; `limited` holds this process to what memory is free."""

    def __init__(
        self, asked: Asked, device: torch.device, tell: Tell, limited: bool = False
    ) -> None:
        self.asked, self.tell, self.limited = asked, tell, limited
        self.terms = Terms(device, asked.rounds, asked.try_anyway)
        self.readings = [replace(one, **who_and_when()) for one in asked.readings]

    def run(self) -> None:
        """All that is wanted, in its order.

        Raises:
            BenchError: a kernel broke the GPU's context, so nothing more can be measured in this process.
        """
        roofs_wanted = self.asked.roofs
        for want in self.asked.wants:
            if roofs_wanted and want in LATER:
                self.tell_roofs()
                roofs_wanted = False
            left = [i for i, one in enumerate(self.readings) if not answered(one, want)]
            if want == "hbm":
                self.take_traffic(left)
            else:
                for index in left:
                    self.take(index, want)
        if roofs_wanted:
            self.tell_roofs()
        self.tell({"done": True})

    def take(self, index: int, want: str) -> None:
        """One entry's answer."""
        self.tell({"begin": index, "what": want, "together": [index]})
        reading = self.readings[index]
        if self.limited:
            allow_no_more_than(available_bytes(torch.device("cpu")))
        found = ask(want, reading, self.terms)
        self.put(index, want, found)
        if isinstance(found, str):
            stop_if_lost((reading.implementation, reading.direction), found, self.terms.device)

    def take_traffic(self, indices: list[int]) -> None:
        """The profiler takes all entries in one run."""
        if not indices:
            return
        self.tell({"begin": indices[0], "what": "hbm", "together": indices})
        readings = [self.readings[index] for index in indices]
        try:
            found = traffic_of(readings, self.terms)
        except Exception as fault:  # whatever it was, time and memory stand
            found = [said_of(fault, one) for one in readings]
        for index, one in zip(indices, found, strict=True):
            self.put(index, "hbm", one)

    def put(self, index: int, want: str, found: Answer) -> None:
        """Into the reading, and out."""
        reading = replace(self.readings[index], when=now())
        if isinstance(found, str):
            reading = refuse(reading, [want], found)
        else:
            reading = replace(reading, **found)
        self.readings[index] = reading
        self.tell({"reading": reading.to_json(), "index": index})

    def tell_roofs(self) -> None:
        """The most bytes and operations a second that this machine really reaches."""
        self.tell({"begin": None, "what": "roofs", "together": []})
        try:
            from kernels.traffic.roofs import measure_roofs

            self.tell({"roofs": asdict(measure_roofs(self.terms.device))})
        except Exception as fault:  # whatever it was, the readings stand
            sentence = f"This machine's roofs could not be measured: {fault}"
            self.tell({"roofs": None, "sentence": sentence.splitlines()[0]})


def who_and_when() -> dict[str, str]:
    """The fields of a reading that say where it comes from."""
    here = machine()
    names = {"torch": "torch", "triton": "Triton", "driver": "driver", "commit": "commit"}
    known = [f"{word} {here[key]}" for key, word in names.items() if here[key]]
    return {"machine": here["machine"], "when": now(), "versions": ", ".join(known)}


def now() -> str:
    """This machine's date and time, to the minute."""
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")


def own_stdout() -> Tell:
    """What libraries print goes to stderr, so that stdout carries nothing but messages."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(message: dict[str, Any]) -> None:
        try:
            ours.write(json.dumps(message) + "\n")
            ours.flush()
        except OSError:  # nobody listens any more
            end_at_once()

    return tell


def end_at_once() -> None:
    """With all that was started here."""
    kill_tree(os.getpid(), spare_root=True)
    os._exit(1)


def end_with_input() -> None:
    """The app closes the input when it ends, however it ends."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        end_at_once()

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    """0 when everything was answered, 2 with a line on stderr where it was not."""
    tell = own_stdout()
    try:
        asked = Asked.from_json(json.loads(sys.stdin.readline()))
    except (ValueError, KeyError, TypeError) as fault:
        print(f"This is no request to measure: {fault}", file=sys.stderr)
        return 2
    end_with_input()
    be_first_to_go()
    # Flex attention throws away what a second backward pass needs, unless it is told not to.
    torch._functorch.config.donated_buffer = False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Graphs are captured on a stream of one's own, so all that leads to them runs there too.
    stream = torch.cuda.Stream() if device.type == "cuda" else None
    try:
        with torch.cuda.stream(stream):  # None changes nothing
            # A GPU's driver reserves more addresses than there is memory, so there it has no limit.
            Session(asked, device, tell, limited=device.type == "cpu").run()
    except BenchError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
