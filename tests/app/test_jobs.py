"""The line of measurements: turns, stopping, and whatever a worker may do. The worker is played, but for two."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from app import jobs as jobs_module
from app import measurement
from app.jobs import Job, Jobs, Request
from app.line import Line
from app.text.jobs import DOING, WENT_WRONG
from kernels import Problem

SMALL = Problem(1, 2, 65, 65, 32, "float32")
PLAYED = (sys.executable, str(Path(__file__).with_name("played_worker.py")))
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="times what a CPU has")


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def over(job: Job, seconds: float = 20.0) -> Job:
    until(lambda: job.over, seconds)
    return job


def request(*names: str, kind="panel", wants=("time", "memory"), roofs: bool = False) -> Request:
    entries = tuple((SMALL, name, "forward") for name in names)
    return Request(kind, entries, wants, roofs=roofs)


def processes() -> set[psutil.Process]:
    """Ours, without those that have ended."""
    every = psutil.Process().children(recursive=True)
    return {one for one in every if one.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """A line with played workers, and nothing left of it."""
    before = processes()
    line = Jobs(command=PLAYED)
    yield line
    for key in list(line._latest):
        line._latest[key].stop()
    until(lambda: not line._line)
    assert processes() <= before


def running(job: Job) -> None:
    """It is in the middle of its first entry that sleeps, and its worker has a child."""
    until(lambda: job.sentence.startswith("Timing sleeps") and len(processes()) >= 2)


# --- one job ----------------------------------------------------------------------------------------


def test_a_job_fills_its_readings_and_says_what_it_does(jobs: Jobs) -> None:
    job = over(jobs.start("a", request("one", "two", roofs=True)))
    assert (job.state, job.progress, job.ahead, job.trouble) == ("done", 1.0, 0, None)
    assert [(one.time_us, one.peak_bytes) for one in job.readings] == [(1.0, 2), (1.0, 2)]
    assert job.roofs is not None
    assert job.roofs.flops_per_s == 2
    assert job.sentence == DOING["done"]


def test_progress_grows_with_each_answer_and_old_snapshots_stay(jobs: Jobs) -> None:
    job = jobs.start("a", request("one", "takes 0.3", wants=("time",)))
    first = job.snapshot
    until(lambda: job.progress == 0.5)
    middle = job.snapshot
    assert middle.sentence in {
        "Timing one, forward, 65 tokens.",
        "Timing takes 0.3, forward, 65 tokens.",
    }
    over(job)
    assert [one.time_us for one in first.readings] == [None, None]
    assert [one.time_us for one in middle.readings] == [1.0, None]
    assert (first.progress, middle.progress, job.progress) == (0.0, 0.5, 1.0)


def test_nothing_to_do_is_done(jobs: Jobs) -> None:
    assert over(jobs.start("a", request())).state == "done"


def test_what_cannot_be_measured_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="cannot be measured"):
        request("one", wants=("taste",))


# --- the line ---------------------------------------------------------------------------------------


def test_two_visitors_wait_in_turn(jobs: Jobs) -> None:
    first = jobs.start("a", request("takes 0.5", wants=("time",)))
    second = jobs.start("b", request("one"))
    third = jobs.start("c", request("one"))
    until(lambda: first.state == "running")
    assert (second.state, second.ahead, third.ahead) == ("waiting", 1, 2)
    over(first)
    over(third)
    assert (second.state, third.state, third.ahead) == ("done", "done", 0)


def test_one_that_waits_can_leave(jobs: Jobs) -> None:
    first = jobs.start("a", request("takes 0.3", wants=("time",)))
    second = jobs.start("b", request("one"))
    third = jobs.start("c", request("two"))
    second.stop()
    assert (second.state, third.ahead) == ("stopped", 1)
    over(third)
    assert first.state == "done"
    assert second.readings[0].time_us is None


def test_a_new_job_of_a_visitor_takes_the_place_of_the_old_one(jobs: Jobs) -> None:
    old = jobs.start("a", request("sleeps"))
    sweep = jobs.start("a", request("one", kind="sweep"))
    running(old)
    new = jobs.start("a", request("one"))
    assert old.state == "stopped"
    assert sweep.state != "stopped"
    assert over(new).state == "done"
    assert jobs.latest("a", "panel") is new
    assert jobs.latest("a", "sweep") is sweep
    assert jobs.latest("b", "panel") is None


# --- stopping ---------------------------------------------------------------------------------------


def test_stop_ends_every_process_and_the_next_job_works(jobs: Jobs) -> None:
    before = processes()
    job = jobs.start("a", request("one", "sleeps", wants=("time",)))
    running(job)
    worker_and_child = processes() - before
    assert len(worker_and_child) == 2
    job.stop()
    assert not [one for one in worker_and_child if one.is_running() and one.status() != "zombie"]
    assert (job.state, job.sentence) == ("stopped", DOING["stopped"])
    assert [one.time_us for one in job.readings] == [1.0, None]
    assert job.readings[1].refused == {}  # it was not the entry's fault
    assert over(jobs.start("a", request("one"))).state == "done"
    job.stop()
    assert job.state == "stopped"


def test_a_job_that_is_over_stays_as_it_is(jobs: Jobs) -> None:
    job = over(jobs.start("a", request("one")))
    job.stop()
    assert job.state == "done"


def test_a_sweep_that_nobody_looks_at_is_stopped(jobs: Jobs, monkeypatch) -> None:
    monkeypatch.setattr(jobs_module, "ABANDONED_S", 0.4)
    sweep = jobs.start("a", request("sleeps", kind="sweep"))
    waiting = jobs.start("b", request("one", kind="sweep"))
    panel = jobs.start("c", request("takes 0.6", wants=("time",)))
    over(sweep)
    over(panel)
    assert (sweep.state, waiting.state, panel.state) == ("stopped", "stopped", "done")
    assert sweep.trouble == waiting.trouble == WENT_WRONG["abandoned"].format(seconds=0)


def test_a_touched_sweep_goes_on(jobs: Jobs, monkeypatch) -> None:
    monkeypatch.setattr(jobs_module, "ABANDONED_S", 0.5)
    sweep = jobs.start("a", request("takes 1.2", kind="sweep", wants=("time",)))
    until(lambda: sweep.touch() or sweep.over)
    assert sweep.state == "done"


# --- what a worker may do ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("killed", WENT_WRONG["killed"]),
        ("crashes", WENT_WRONG["crashed"]),
        ("quits", WENT_WRONG["ended"]),
        ("garbage", WENT_WRONG["garbage"]),
        ("odd", WENT_WRONG["garbage"]),
    ],
)
def test_what_a_worker_dies_of_is_told_and_the_rest_is_measured(jobs, name, sentence) -> None:
    job = over(jobs.start("a", request("one", name, "two", wants=("time", "memory"))))
    assert (job.state, job.trouble, job.progress) == ("done", None, 1.0)
    assert [(one.time_us, one.peak_bytes) for one in job.readings] == [
        (1.0, 2),
        (None, None),
        (1.0, 2),
    ]
    number = {"crashes": 11, "quits": 2}.get(name)
    said = sentence.format(what=f"{name}, forward, 65 tokens", number=number)
    assert job.readings[1].refused == {"time": said, "memory": said}


def test_a_worker_killed_from_outside_is_replaced(jobs: Jobs) -> None:
    job = jobs.start("a", request("one", "sleeps", "two", wants=("time",)))
    running(job)
    assert job._worker is not None
    pid = job._worker.pid
    children = set(psutil.Process(pid).children())
    os.kill(pid, 9)
    over(job)
    assert job.state == "done"
    assert [one.time_us for one in job.readings] == [1.0, None, 1.0]
    assert job.readings[1].refused["time"].startswith("The system ended the measuring process")
    until(lambda: not any(one.is_running() and one.status() != "zombie" for one in children))


def test_a_silent_worker_is_ended(jobs: Jobs, monkeypatch) -> None:
    monkeypatch.setattr(measurement, "STEP_S", 1.0)
    job = over(jobs.start("a", request("sleeps", "one", wants=("time",))))
    assert "There was no answer for 1 s at sleeps" in job.readings[0].refused["time"]
    assert job.readings[1].time_us == 1.0


def test_what_was_measured_together_keeps_its_other_questions(jobs: Jobs) -> None:
    job = over(jobs.start("a", request("hbm killed", "one", wants=("time", "hbm", "memory"))))
    assert job.state == "done"
    for reading in job.readings:
        assert list(reading.refused) == ["hbm"]
        assert (reading.time_us, reading.peak_bytes) == (1.0, None) or reading.peak_bytes == 2


@pytest.mark.parametrize(
    "command",
    [("/there/is/no/such/program",), (sys.executable, "-c", "raise SystemExit(3)")],
    ids=["missing", "ends at once"],
)
def test_a_worker_that_does_not_start_is_a_sentence(command) -> None:
    line = Jobs(command=command)
    job = over(line.start("a", request("one")))
    assert (job.state, job.trouble) == ("failed", WENT_WRONG["not_started"])
    assert over(line.start("a", request("one"))).state == "failed"  # and the line lives on


def test_a_worker_that_stops_early_is_tried_some_times_only() -> None:
    begins = 'import sys; print(\'{"begin": null, "what": "roofs", "together": []}\'); '
    line = Jobs(command=(sys.executable, "-c", f"{begins}print('{{\"done\": true}}')"))
    job = over(line.start("a", request("one")))
    assert (job.state, job.trouble) == ("failed", WENT_WRONG["again_and_again"])


# --- what others know -------------------------------------------------------------------------------


def test_a_reading_is_known_to_all(jobs: Jobs) -> None:
    assert jobs.known(SMALL, "one", "forward") is None
    over(jobs.start("a", request("one", wants=("time",))))
    over(jobs.start("b", request("one", wants=("memory",))))
    known = jobs.known(SMALL, "one", "forward")
    assert known is not None
    assert (known.time_us, known.peak_bytes) == (1.0, 2)
    assert jobs.known(SMALL, "one", "backward") is None


def test_what_is_known_is_bounded(jobs: Jobs, monkeypatch) -> None:
    monkeypatch.setattr(jobs_module, "MOST_KEPT", 2)
    over(jobs.start("a", request("one", "two", "three", wants=("time",))))
    known = [jobs.known(SMALL, name, "forward") is not None for name in ("one", "two", "three")]
    assert known == [False, True, True]


def test_others_work_is_marked_on_what_it_disturbs() -> None:
    model = Line()
    line = Jobs(model.stirred, command=PLAYED)
    quiet = over(line.start("a", request("one", "two")))
    assert [one.busy for one in quiet.readings] == [False, False]
    job = line.start("a", request("takes 0.3", "two", wants=("time",)))
    until(lambda: job.sentence.startswith("Timing takes"))
    with model.turn():
        pass
    over(job)
    assert [one.busy for one in job.readings] == [True, False]
    with model.beside():
        memory = over(line.start("a", request("one", wants=("memory",))))
        timed = over(line.start("a", request("two", wants=("time",))))
    assert (memory.readings[0].busy, timed.readings[0].busy) == (False, True)


def test_the_line_tells_work_begun_ended_and_going_on() -> None:
    line = Line()
    quiet = line.stirred()
    assert line.stirred() == quiet
    with line.turn():
        during = line.stirred()
        assert during != quiet
        assert line.stirred() != during
        last = line.stirred()
    after = line.stirred()
    assert after != last
    assert line.stirred() == after


# --- the real worker --------------------------------------------------------------------------------


@pytest.mark.slow
@on_cpu
def test_a_real_measurement_and_a_real_stop() -> None:
    before = processes()
    line = Jobs()
    long = Problem(1, 6, 6000, 6000, 64, "float32")
    job = line.start("a", Request("sweep", ((long, "eager", "forward"),), try_anyway=True))
    until(lambda: job.sentence.startswith("Timing eager"), 60)
    until(lambda: max((p.memory_info().rss for p in processes() - before), default=0) > 1e9, 60)
    job.stop()
    assert processes() <= before
    small = tuple((SMALL, name, "forward") for name in ("eager", "torch-cpu-flash", "fa2"))
    done = over(line.start("a", Request("panel", small)), 60)
    assert done.state == "done"
    assert [one.time_us is not None for one in done.readings] == [True, True, False]
    assert [one.peak_bytes is not None for one in done.readings] == [True, True, False]
    assert processes() <= before


@pytest.mark.gpu
@pytest.mark.slow
def test_a_gpu_answers_everything_and_survives_what_will_not_fit() -> None:
    before = processes()
    line = Jobs()
    fits = Problem(1, 6, 1370, 1370, 64, "float16")
    huge = Problem(1, 6, 300_000, 300_000, 64, "float16")  # naive: a terabyte
    entries = tuple((one, name, "forward") for one in (fits, huge) for name in ("naive", "fa2"))
    everything = ("time", "memory", "counted", "hbm", "energy")
    naive, fa2 = over(line.start("a", Request("panel", entries[:2], everything)), 300).readings
    for reading in (naive, fa2):
        assert reading.time_us is not None
        assert reading.timed_by == "graph"
        assert reading.peak_by == "allocator"
        assert reading.counted is not None
        assert reading.hbm_cold is not None or reading.refused["hbm"]
        assert reading.energy_mj is not None or reading.refused["energy"]
    assert (naive.peak_bytes or 0) > 5 * (fa2.peak_bytes or 0) > 0
    wants = ("time", "memory")
    said = over(line.start("a", Request("panel", entries[2:], wants)), 300).readings
    assert said[0].refused["time"].startswith("naive needs 1081 GB here; this GPU has")
    tried = over(line.start("a", Request("panel", entries[2:], wants, try_anyway=True)), 300)
    assert (tried.state, tried.trouble) == ("done", None)
    assert tried.readings[0].refused["time"].startswith("naive ran out of memory")
    assert tried.readings[1].time_us is not None
    assert tried.readings[1].peak_bytes is not None
    assert processes() <= before
