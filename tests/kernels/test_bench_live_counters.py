"""The app's measuring process: traffic, energy and roofs, with played counters."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import torch

from kernels.bench import allowed, answers, live
from kernels.bench.asked import Asked
from kernels.bench.contestants import make_inputs
from kernels.traffic import nvml, roofs
from kernels.traffic.ledger import Traffic, TrafficError
from tests.kernels.live_session import CPU, SMALL, entries, last_of, messages, on_cpu, quick  # noqa: F401 (a fixture)

pytestmark = on_cpu


def test_counted_bytes_and_the_reason_where_there_are_none(monkeypatch):
    def counted(problem, implementation, direction, in_worker, timeout_s):
        assert (problem, direction, in_worker) == (SMALL, "forward", False)
        assert timeout_s < 300
        if implementation != "fa2":
            raise TrafficError("eager has no loads of its own to count.")
        return Traffic(10, 20, "counted")

    played = type(sys)("kernels.traffic.counted")
    played.counted = counted  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "kernels.traffic.counted", played)
    said = messages(Asked(entries("fa2", "eager"), ("counted",)))
    assert last_of(said, 0).counted == (10, 20)
    assert last_of(said, 1).refused == {"counted": "eager has no loads of its own to count."}


@dataclasses.dataclass(frozen=True)
class Played(Traffic):
    l2_read: int = 5
    l2_written: int = 6


def played_counters(monkeypatch, found):
    """A GPU's counters that say this; what each asks for is handed on."""
    asked = []

    def measured_all(requests):
        asked.extend(requests)
        return found

    # The package has a function of the module's name.
    module = importlib.import_module("kernels.traffic.measured")
    monkeypatch.setattr(module, "measured_all", measured_all)
    monkeypatch.setattr(answers, "reason_against", lambda one, terms: fits.get(one.implementation))
    fits = {"naive": "naive needs 75 GB here."}
    return asked


def test_the_profiler_takes_all_in_one_run(monkeypatch):
    key, other = (SMALL, "fa2", "forward"), (SMALL, "eager", "forward")
    found = {
        (*key, "cold"): Played(1, 2, "measured"),
        (*key, "warm"): Played(3, 4, "measured"),
        (*other, "cold"): TrafficError("ncu was killed."),
        (*other, "warm"): Played(7, 8, "measured"),
    }
    asked = played_counters(monkeypatch, found)
    terms = allowed.Terms(torch.device("cuda"), 3)
    whole, half, refused = answers.traffic_of(entries("fa2", "eager", "naive"), terms)
    assert asked == [key, other]  # what will not fit is not asked
    assert whole == {"hbm_cold": (1, 2), "hbm_warm": (3, 4), "l2": (5, 6)}
    assert half == {"hbm_warm": (7, 8), "l2": (5, 6), "refused": {"hbm": "ncu was killed."}}
    assert refused == "naive needs 75 GB here."


def test_a_refused_profiler_is_a_sentence_for_each(monkeypatch):
    found = {(SMALL, "fa2", "forward", c): TrafficError("No permission.") for c in ("cold", "warm")}
    played_counters(monkeypatch, found)
    terms = allowed.Terms(torch.device("cuda"), 3)
    assert answers.traffic_of(entries("fa2"), terms) == ["No permission."]


def test_where_no_counter_may_be_read_an_average_stands_in(monkeypatch):
    found = {(SMALL, "fa2", "forward", c): TrafficError("No permission.") for c in ("cold", "warm")}
    played_counters(monkeypatch, found)
    monkeypatch.setattr(answers, "inputs_of", lambda problem, device: make_inputs(problem, CPU))
    average = nvml.BandwidthAverage(12.5, 1.0, 1e12, 1.0, 100)
    monkeypatch.setattr(nvml, "bandwidth_average", lambda work, device: average)
    terms = allowed.Terms(torch.device("cuda"), 3)
    answer, left_out = answers.traffic_of(entries("fa2", "naive"), terms)
    assert answer == {"hbm_average": 12.5, "refused": {"hbm": "No permission."}}
    assert left_out == "naive needs 75 GB here."


def test_a_broken_profiler_leaves_time_and_memory(monkeypatch):
    def broken(readings, terms):
        raise OSError("disk full")

    monkeypatch.setattr(live, "traffic_of", broken)
    said = messages(Asked(entries("eager"), ("time", "hbm"), rounds=3))
    assert last_of(said, 0).time_us
    assert last_of(said, 0).refused == {"hbm": "eager failed: OSError: disk full"}


def test_roofs_come_before_what_takes_long(monkeypatch):
    there = roofs.Roofs(1e11, 1e12, "float32", "CPU", "now")
    monkeypatch.setattr(roofs, "measure_roofs", lambda device: there)
    said = messages(Asked(entries("eager"), ("time", "hbm"), rounds=3, roofs=True))
    assert [one["what"] for one in said if "begin" in one] == ["time", "roofs", "hbm"]
    assert next(one["roofs"] for one in said if "roofs" in one) == dataclasses.asdict(there)


def test_roofs_that_fail_are_a_sentence(monkeypatch):
    def broken(device):
        raise RuntimeError("busy")

    monkeypatch.setattr(roofs, "measure_roofs", broken)
    said = messages(Asked(entries("eager"), ("time",), rounds=3, roofs=True))
    failed = next(one for one in said if "roofs" in one)
    assert failed == {"roofs": None, "sentence": "This machine's roofs could not be measured: busy"}
    assert said[-1] == {"done": True}
