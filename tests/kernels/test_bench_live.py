"""The app's measuring process: what it says in which order, and how it says no."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kernels import Problem
from kernels.bench import allowed, answers
from kernels.bench.asked import Asked, answered, has, in_order, merged, refuse
from kernels.bench.peak import NoPeak
from kernels.bench.reading import Reading
from kernels.eager import IMPLEMENTATION as EAGER
from tests.kernels.live_session import CPU, SMALL, entries, last_of, messages, on_cpu, quick  # noqa: F401 (a fixture)

ROOT = Path(__file__).parents[2]
pytestmark = on_cpu


# --- what is asked ----------------------------------------------------------------------------------


def test_a_request_comes_back_from_json():
    refused = refuse(Reading(SMALL, "naive"), ["time"], "no")
    asked = Asked((*entries("eager"), refused), ("time", "hbm"), 5, True, True)
    assert Asked.from_json(json.loads(json.dumps(asked.to_json()))) == asked


def test_entries_will_do_as_well_as_readings():
    entry = [dataclasses.asdict(SMALL), "fa2", "backward"]
    asked = Asked.from_json({"entries": [entry], "wants": ["memory", "time"]})
    assert asked.readings == (Reading(SMALL, "fa2", "backward"),)
    assert asked.wants == ("time", "memory")


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="'taste' cannot be measured; choose from time, memory"):
        in_order(["time", "taste"])


def test_what_is_answered_is_not_refused_again():
    reading = dataclasses.replace(Reading(SMALL, "fa2"), hbm_warm=(1, 2))
    assert has(reading, "hbm")
    assert not answered(reading, "time")
    refused = refuse(reading, ["hbm", "time"], "no")
    assert refused.refused == {"time": "no"}
    assert answered(refused, "time")
    assert not has(refused, "time")


def test_a_new_reading_keeps_what_it_was_not_asked():
    old = Reading(SMALL, "fa2", time_us=1.0, samples=3, peak_bytes=7, peak_by="process")
    new = merged(refuse(Reading(SMALL, "fa2", counted=(3, 4)), ["time"], "no"), old)
    assert (new.peak_bytes, new.peak_by, new.counted) == (7, "process", (3, 4))
    assert new.time_us is None  # it was asked, and refused


# --- order and answers ------------------------------------------------------------------------------


def test_time_of_all_comes_before_memory_of_any():
    said = messages(Asked(entries("eager", "torch-cpu-flash"), ("time", "memory"), rounds=3))
    begun = [(one["what"], one["begin"]) for one in said if "begin" in one]
    assert begun == [("time", 0), ("time", 1), ("memory", 0), ("memory", 1)]
    kinds = ["begin" if "begin" in one else "reading" for one in said[:-1]]
    assert kinds == ["begin", "reading"] * 4
    assert said[-1] == {"done": True}


def test_a_reading_is_whole():
    said = messages(Asked(entries("eager"), ("time", "memory", "hbm", "energy"), rounds=3))
    reading = last_of(said, 0)
    assert reading.time_low_us is not None
    assert reading.time_us is not None
    assert reading.time_high_us is not None
    assert 0 < reading.time_low_us <= reading.time_us <= reading.time_high_us
    assert (reading.samples, reading.timed_by) == (3, "benchmark")
    assert (reading.peak_bytes, reading.peak_by) == (1000, "process")
    assert reading.machine.startswith("CPU, ")
    assert "torch " in reading.versions
    assert len(reading.when) == len("2025-01-31 12:00")
    assert reading.refused == {"hbm": answers.NO_COUNTERS, "energy": answers.NO_METER}


@pytest.mark.parametrize("direction", ["backward", "forward+backward"])
def test_gradients_are_checked_and_timed(direction):
    said = messages(Asked(entries("eager", direction=direction), ("time",), rounds=3))
    assert last_of(said, 0).time_us


def test_gradients_of_a_large_problem_are_checked_on_a_small_one(monkeypatch):
    monkeypatch.setitem(answers.CHECKED_SCORES, "cpu", 100)
    wanted = entries("torch-cpu-flash", problem=Problem(1, 1, 300, 300, 32, "float32"))
    reading = dataclasses.replace(wanted[0], direction="backward")
    assert last_of(messages(Asked((reading,), ("time",), rounds=3)), 0).time_us
    assert answers.truth_of_small.cache_info().currsize == 1


def test_what_is_answered_is_not_measured_again():
    done = dataclasses.replace(entries("eager")[0], time_us=5.0)
    said = messages(Asked((done,), ("time", "memory"), rounds=3))
    assert [one["what"] for one in said if "begin" in one] == ["memory"]
    assert last_of(said, 0).time_us == 5.0


def test_a_slow_call_is_not_repeated_for_warmth(monkeypatch):
    monkeypatch.setattr(answers, "SLOW_CALL_S", 0.0)
    calls: list[int] = []
    forward = lambda *given: calls.append(1) or EAGER.forward(*given)  # noqa: E731
    monkeypatch.setattr(allowed, "load", lambda name: dataclasses.replace(EAGER, forward=forward))
    reading = last_of(messages(Asked(entries("eager"), ("time",))), 0)
    assert reading.timed_by == "benchmark"
    assert reading.samples + 2 <= len(calls)


# --- no ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["naive", "fa1", "fa2"])
def test_the_interpreters_time_is_not_a_kernels_time(name):
    reading = last_of(messages(Asked(entries(name), ("time", "memory"))), 0)
    assert (reading.time_us, reading.peak_bytes) == (None, None)
    for want in ("time", "memory"):
        assert f"{name} is made for an NVIDIA GPU" in reading.refused[want]
        assert "eager and torch-cpu-flash" in reading.refused[want]


def test_a_peer_says_itself_what_it_lacks():
    reading = last_of(messages(Asked(entries("sdpa-flash"), ("time",))), 0)
    assert "sdpa-flash" in reading.refused["time"]


def test_a_wrong_answer_is_never_timed(monkeypatch):
    def wrong(*given):
        output, log_sum_exp = EAGER.forward(*given)
        return output * 1.01, log_sum_exp

    monkeypatch.setattr(allowed, "load", lambda name: dataclasses.replace(EAGER, forward=wrong))
    reading = last_of(messages(Asked(entries("eager"), ("time",))), 0)
    assert reading.time_us is None
    assert reading.refused["time"].startswith("wrong: the output is off by")


def test_what_raises_is_a_sentence_and_the_rest_goes_on(monkeypatch):
    def broken(*given):
        raise ArithmeticError("no\nnumbers")

    load = allowed.load
    fakes = {"eager": dataclasses.replace(EAGER, forward=broken)}
    monkeypatch.setattr(allowed, "load", lambda name: fakes.get(name) or load(name))
    said = messages(Asked(entries("eager", "torch-cpu-flash"), ("time",), rounds=3))
    assert last_of(said, 0).refused == {"time": "eager failed: ArithmeticError: no"}
    assert last_of(said, 1).time_us


def test_what_will_not_fit_is_said_before_it_runs_and_tried_on_request(monkeypatch):
    monkeypatch.setattr(allowed, "available_bytes", lambda device: 50_000)
    wanted = entries("eager")
    refused = last_of(messages(Asked(wanted, ("time", "memory"))), 0).refused
    assert refused["time"] == refused["memory"]
    assert "eager needs" in refused["time"]
    assert "this machine has 50 kB free" in refused["time"]
    tried = last_of(messages(Asked(wanted, ("time", "memory"), rounds=3, try_anyway=True)), 0)
    assert tried.time_us
    assert tried.peak_bytes


@pytest.mark.parametrize(
    "fault", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_running_out_of_memory_is_a_sentence(monkeypatch, fault):
    def full(*given):
        raise fault

    monkeypatch.setattr(allowed, "load", lambda name: dataclasses.replace(EAGER, forward=full))
    refused = last_of(messages(Asked(entries("eager"), ("time",))), 0).refused
    assert refused["time"].startswith("eager ran out of memory: it needs about ")


def test_what_would_take_too_long_is_tried_on_request_only(monkeypatch):
    monkeypatch.setitem(allowed.SURELY_QUICK, "cpu", 0)
    monkeypatch.setattr(allowed, "LONGEST_CALL_S", 0.0)
    refused = last_of(messages(Asked(entries("eager"), ("time", "memory"))), 0).refused
    assert "eager would take about 0 s for one call here" in refused["time"]
    assert "try it anyway" in refused["memory"]
    assert last_of(messages(Asked(entries("eager"), ("time",), 3, True)), 0).time_us


def test_the_forecast_of_time_goes_with_the_scores(monkeypatch):
    monkeypatch.setitem(allowed.SURELY_QUICK, "cpu", 2**20)
    monkeypatch.setitem(allowed.PROBE_TOKENS, "cpu", 256)
    large = Problem(2, 6, 2048, 2048, 64, "float32")
    seconds = allowed.seconds_a_call(EAGER, large, "forward", CPU)
    assert 0.05 < seconds < 60
    assert allowed.seconds_a_call(EAGER, SMALL, "forward", CPU) == 0.0


def test_no_peak_is_its_own_sentence(monkeypatch):
    def none(*entry):
        raise NoPeak("The system ended eager.")

    monkeypatch.setattr(answers, "measured_peak", none)
    refused = last_of(messages(Asked(entries("eager"), ("memory",))), 0).refused
    assert refused == {"memory": "The system ended eager."}


# --- the process ------------------------------------------------------------------------------------


def start(asked: Asked) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "kernels.bench.live"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ},
    )
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(asked.to_json()) + "\n")
    worker.stdin.flush()
    return worker


@pytest.mark.slow
@pytest.mark.skipif(not psutil.LINUX, reason="the memory limit of a process is Linux's")
def test_a_call_that_will_not_fit_is_survived():
    huge = Problem(1, 1, 300_000, 300_000, 8, "float32")
    wanted = (*entries("eager", problem=huge), *entries("torch-cpu-flash"))
    worker = start(Asked(wanted, ("time", "memory"), 3, try_anyway=True))
    said = [json.loads(line) for line in worker.stdout or ()]
    assert worker.wait(10) == 0
    assert said[-1] == {"done": True}
    refused = last_of(said, 0).refused
    assert refused["time"].startswith("eager ran out of memory: it needs about 720 GB")
    assert refused["memory"].startswith("eager ran out of memory: it needs 720 GB")
    fitted = last_of(said, 1)
    assert fitted.time_us
    assert fitted.peak_bytes is not None


@pytest.mark.slow
def test_it_ends_with_the_app():
    long = Problem(1, 6, 6000, 6000, 64, "float32")
    worker = start(Asked(entries("eager", problem=long), ("time",), try_anyway=True))
    assert worker.stdout is not None
    assert json.loads(worker.stdout.readline())["what"] == "time"
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(10) == 1


@pytest.mark.slow
def test_what_is_no_request_ends_it():
    done = subprocess.run(
        [sys.executable, "-m", "kernels.bench.live"],
        input="hello\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no request to measure" in done.stderr
