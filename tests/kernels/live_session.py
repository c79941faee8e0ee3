"""A session of the app's measuring process, in this process, for tests of what it says."""

from __future__ import annotations

import json

import pytest
import torch

from kernels import Problem
from kernels.bench import answers, live, timing
from kernels.bench.asked import Asked
from kernels.bench.reading import Reading

CPU = torch.device("cpu")
SMALL = Problem(1, 2, 65, 65, 32, "float32")
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="times what a CPU has")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No sample lasts long, and no process of its own is started for a peak."""
    monkeypatch.setattr(timing, "CPU_SAMPLE_US", 100.0)
    monkeypatch.setattr(answers, "measured_peak", lambda *entry: 1000)


def entries(*names: str, problem: Problem = SMALL, direction: str = "forward"):
    return tuple(Reading(problem, name, direction) for name in names)


def messages(asked: Asked) -> list[dict]:
    """All that a session says, after its way through JSON."""
    said: list[dict] = []
    live.Session(asked, CPU, lambda message: said.append(json.loads(json.dumps(message)))).run()
    return said


def last_of(said: list[dict], index: int) -> Reading:
    found = [message for message in said if message.get("index") == index]
    return Reading.from_json(found[-1]["reading"])
