"""Traffic from the GPU's counters: with a played ncu everywhere, with the real one on a GPU."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from pathlib import Path

import psutil
import pytest
import torch

from kernels import Problem
from kernels.traffic import child, kept, ncu
from kernels.traffic.ledger import TrafficError
from kernels.traffic.ncu import CountersError
from tests.kernels import played_ncu

door = importlib.import_module(
    "kernels.traffic.measured"
)  # the package has a function of this name
SMALL = Problem(1, 2, 64, 64, 64)
FORWARD, BACKWARD = (SMALL, "fa2", "forward"), (SMALL, "fa2", "backward")
NAIVE = (SMALL, "naive", "forward")
READ = sum(played_ncu.KERNELS[name][0] for name in played_ncu.WORK)
WRITTEN = sum(played_ncu.KERNELS[name][1] for name in played_ncu.WORK)
L2_READ = sum(played_ncu.KERNELS[name][2] for name in played_ncu.WORK)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a GPU and a played ncu before all others on PATH, and a cache of its own."""
    (tmp_path / "bin").mkdir()
    played_ncu.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FLASHLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PLAYED_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PLAYED_PIDS", str(tmp_path / "pids"))
    monkeypatch.delenv("PLAYED_NCU", raising=False)
    monkeypatch.setattr(door, "gpu_name", lambda: "Played GPU")
    return tmp_path


def runs(stage: Path) -> list[dict]:
    """How ncu was started, each time."""
    log = stage / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in map(json.loads, lines) if line["event"] == "start"]


def refusal(request=FORWARD, cache: ncu.Cache = "cold", timeout_s: float = 30.0) -> CountersError:
    """The refusal of a measurement: one sentence."""
    with pytest.raises(CountersError) as caught:
        door.measured(*request, cache, timeout_s)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".") or caught.value.cause == "failed"
    return caught.value


# --- what is measured -------------------------------------------------------------------------------


def test_cold(stage):
    found = door.measured(*FORWARD)
    assert (found.bytes_read, found.bytes_written) == (READ, WRITTEN)
    assert [part.kernel for part in found.detail] == played_ncu.WORK
    assert found.l2_read == L2_READ
    assert found.l2_looked_up == 32 * (2_500_000 + 10)
    assert found.time_us == pytest.approx(116.0)
    assert found.source == "measured"
    assert (found.cache, found.gpu, found.ncu) == ("cold", "Played GPU", "2025.3.1.0")
    assert found.calibration.passed
    assert found.calibration.expected == 2**30
    assert not found.from_cache


def test_how_ncu_is_called(stage, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    door.measured(*FORWARD)
    (run,) = runs(stage)
    options = run["options"]
    assert options["--cache-control"] == "all"
    assert options["--clock-control"] == "none"
    assert options["--profile-from-start"] == "off"
    assert options["--print-units"] == "base"
    assert options["--page"] == "raw"
    assert run["child"][1:3] == ["-m", "kernels.traffic.replay"]
    assert not run["interpreted"], "kernels must be compiled under the profiler"
    assert not Path(run["child"][-1]).exists(), "the folder of a run goes with it"


def test_warm_dram_is_measured_alone_where_all_counters_take_two_runs(stage):
    found = door.measured(*FORWARD, "warm")
    first, second = runs(stage)
    assert first["options"]["--cache-control"] == "none"
    assert ncu.L2_READ in first["options"]["--metrics"]
    assert "l1tex" not in second["options"]["--metrics"]
    assert "lts__" not in second["options"]["--metrics"]
    assert found.passes == 1
    assert (found.bytes_read, found.l2_read) == (READ, L2_READ)


def test_warm_in_one_run_where_that_is_enough(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "one pass")
    assert door.measured(*FORWARD, "warm").passes == 1
    assert len(runs(stage)) == 1


def test_all_in_one_process_for_each_mode(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "one pass")
    found = door.measured_all([FORWARD, BACKWARD, FORWARD])
    assert set(found) == {(*r, c) for r in (FORWARD, BACKWARD) for c in ("cold", "warm")}
    assert all(one.bytes_read == READ for one in found.values())
    assert [run["options"]["--cache-control"] for run in runs(stage)] == ["all", "none"]


def test_what_is_asked_of_l2_is_measured_once_for_both_modes(stage):
    found = door.measured_all([FORWARD])
    first, second = runs(stage)
    assert ncu.L2_READ in first["options"]["--metrics"]
    assert ncu.L2_READ not in second["options"]["--metrics"]
    cold, warm = (found[*FORWARD, cache] for cache in ("cold", "warm"))
    assert cold.l2_read == warm.l2_read == L2_READ
    assert (cold.passes, warm.passes) == (2, 1)


def test_what_failed_cold_is_asked_again_warm(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "naive runs out")
    found = door.measured_all([NAIVE, FORWARD])
    assert [ncu.L2_READ in run["options"]["--metrics"] for run in runs(stage)] == [1, 1, 0]
    assert found[*NAIVE, "warm"].cause == "out of memory"
    assert found[*FORWARD, "warm"].l2_read == L2_READ


def test_out_of_memory_loses_no_other(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "naive runs out")
    found = door.measured_all([NAIVE, FORWARD], ["cold"])
    assert found[*NAIVE, "cold"].cause == "out of memory"
    assert found[*FORWARD, "cold"].bytes_read == READ


def test_a_calibration_that_is_off_shows_and_is_not_kept(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "small copy")
    assert not door.measured(*FORWARD).calibration.passed
    assert not door.measured(*FORWARD).from_cache


@pytest.mark.parametrize(
    ("read", "written", "passed"),
    [(100, 100, True), (102, 98, True), (103, 100, False), (100, 97, False), (100, 103, False)],
)
def test_calibration_within_two_percent(read, written, passed):
    assert door.Calibration(100, read, written).passed is passed


# --- kept on disk -----------------------------------------------------------------------------------


def test_the_second_time_it_comes_from_disk(stage):
    first, again = door.measured(*FORWARD), door.measured(*FORWARD)
    assert len(runs(stage)) == 1
    assert again.from_cache
    assert again.calibration == first.calibration
    assert again.detail == first.detail
    assert again.date == first.date


@pytest.mark.parametrize(
    "change", ["problem", "implementation", "direction", "mode", "gpu", "code"]
)
def test_another_key_is_measured_anew(stage, monkeypatch, change):
    door.measured(*FORWARD)
    problem = Problem(1, 2, 65, 64, 64) if change == "problem" else SMALL
    name = "fa1" if change == "implementation" else "fa2"
    direction = "backward" if change == "direction" else "forward"
    if change == "gpu":
        monkeypatch.setattr(door, "gpu_name", lambda: "Another GPU")
    if change == "code":
        monkeypatch.setattr(kept, "source_hash", lambda: "other")
    monkeypatch.setenv("PLAYED_NCU", "one pass")
    cache = "warm" if change == "mode" else "cold"
    assert not door.measured(problem, name, direction, cache).from_cache
    assert len(runs(stage)) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": 1}', None])
def test_a_damaged_file_is_written_anew(stage, content):
    door.measured(*FORWARD)
    (file,) = (stage / "cache/traffic").glob("*.json")
    whole = file.read_text()
    emptied = json.dumps(json.loads(whole) | {"values": {"detail": [], "calibration": {}}})
    file.write_text(emptied if content is None else content)
    assert not door.measured(*FORWARD).from_cache
    assert json.loads(file.read_text())["key"] == json.loads(whole)["key"]
    assert door.measured(*FORWARD).from_cache


def test_without_a_folder_it_is_measured_each_time(stage, monkeypatch):
    (stage / "file").touch()
    monkeypatch.setenv("FLASHLENS_CACHE", str(stage / "file" / "cache"))
    assert not door.measured(*FORWARD).from_cache
    assert not door.measured(*FORWARD).from_cache


def test_the_hash_knows_every_module(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "KERNELS", tmp_path)
    (tmp_path / "fa9").mkdir()
    (tmp_path / "fa9/forward.py").write_text("a = 1\n")
    before = kept.source_hash()
    (tmp_path / "fa9/forward.py").write_text("a = 2\n")
    assert kept.source_hash() != before


# --- one at a time ----------------------------------------------------------------------------------


def test_two_wait_for_each_other(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_SECONDS", "0.3")
    both = [threading.Thread(target=door.measured, args=r) for r in (FORWARD, BACKWARD)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    events = [json.loads(line)["event"] for line in (stage / "log").read_text().splitlines()]
    assert events == ["start", "end", "start", "end"]


def test_two_threads_wait_for_each_other_without_a_folder_too(stage, monkeypatch):
    monkeypatch.setattr(kept, "folder", lambda: None)
    monkeypatch.setenv("PLAYED_SECONDS", "0.3")
    both = [threading.Thread(target=door.measured, args=r) for r in (FORWARD, BACKWARD)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    events = [json.loads(line)["event"] for line in (stage / "log").read_text().splitlines()]
    assert events == ["start", "end", "start", "end"]


def test_patience_ends_in_a_thread_too(stage):
    with kept.IN_THIS_PROCESS:
        assert refusal(timeout_s=0.05).cause == "busy"
    assert door.measured(*FORWARD).bytes_read == READ


def test_who_waited_takes_what_the_other_measured(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_SECONDS", "0.3")
    both = [threading.Thread(target=door.measured, args=FORWARD) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(runs(stage)) == 1


def test_another_process_holds_the_line(stage):
    fcntl = pytest.importorskip("fcntl")
    place = kept.folder()
    assert place is not None
    with (place / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fault = refusal(timeout_s=0.1)
    assert fault.cause == "busy"
    assert "try again" in str(fault)
    assert door.measured(*FORWARD).bytes_read == READ


# --- every way to be refused ------------------------------------------------------------------------

SCENES = [
    ("permission", "permission", "NVreg_RestrictProfilingToAdminUsers=0"),
    ("busy", "busy", "dcgmi profile --pause"),
    ("library", "no library", "NVIDIA_DRIVER_CAPABILITIES"),
    ("old", "unsuited", "install the Nsight Compute"),
    ("nothing", "failed", "saw no kernel"),
    ("killed", "killed", "SIGKILL"),
    ("garbage", "unreadable", "measure again"),
    ("other units", "unreadable", "'Mbyte' instead of byte"),
    ("too few", "unreadable", "fewer kernels"),
    ("short of memory", "out of memory", "end what else runs"),
    ("crash", "failed", "ImportError: no such thing"),
]


@pytest.mark.parametrize(("scene", "cause", "words"), SCENES)
def test_a_refusal_is_a_sentence_and_the_next_measurement_works(
    stage, monkeypatch, scene, cause, words
):
    monkeypatch.setenv("PLAYED_NCU", scene)
    fault = refusal()
    assert fault.cause == cause
    assert words in str(fault)
    monkeypatch.delenv("PLAYED_NCU")
    assert door.measured(*FORWARD).bytes_read == READ


def test_time_out_leaves_no_process(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "slow")
    fault = refusal(timeout_s=3.0)
    assert fault.cause == "time-out"
    assert "3 s" in str(fault)
    pids = json.loads((stage / "pids").read_text())
    assert len(pids) == 4
    assert [pid for pid in pids if alive(pid)] == []
    monkeypatch.delenv("PLAYED_NCU")
    assert door.measured(*FORWARD).bytes_read == READ


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_holds_for_the_machine_is_asked_once(stage, monkeypatch):
    monkeypatch.setenv("PLAYED_NCU", "permission")
    found = door.measured_all([FORWARD, BACKWARD])
    assert {one.cause for one in found.values()} == {"permission"}
    assert len(found) == 4
    assert len(runs(stage)) == 1


def test_no_ncu(stage, monkeypatch):
    monkeypatch.setenv("PATH", str(stage))
    monkeypatch.setattr(ncu, "ELSEWHERE", ())
    fault = refusal()
    assert fault.cause == "no ncu"
    assert "Nsight Compute" in str(fault)


def test_ncu_where_installers_leave_it(stage, monkeypatch):
    monkeypatch.setenv("PATH", str(stage))
    for version in ("2025.1.0", "2025.3.1"):
        (stage / "nsight" / version).mkdir(parents=True)
        played_ncu.install(stage / "nsight" / version)
    monkeypatch.setattr(ncu, "ELSEWHERE", (f"{stage}/nsight/*/ncu",))
    assert ncu.find() == f"{stage}/nsight/2025.3.1/ncu"


def test_ncu_that_cannot_be_started(stage):
    (stage / "bin/ncu").write_text("#!/no/such/interpreter\n")
    assert refusal().cause == "failed"


def test_no_gpu(stage, monkeypatch):
    monkeypatch.setattr(door, "gpu_name", lambda: None)
    fault = refusal()
    assert fault.cause == "no gpu"
    assert isinstance(fault, TrafficError)


# --- the child --------------------------------------------------------------------------------------


def test_who_outlives_the_program_is_ended_too(tmp_path):
    sleep = "import time; time.sleep(600)"
    leave = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {sleep!r}]).pid)"
    )
    ended = child.run([sys.executable, "-c", leave], os.environ, tmp_path, 20.0)
    assert ended.code == 0
    assert not alive(int(ended.stdout))


# --- on a GPU ---------------------------------------------------------------------------------------


OF_THE_MACHINE = ("no ncu", "permission", "busy", "no library", "unsuited")


@pytest.mark.gpu
@pytest.mark.slow
def test_the_real_counters(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHLENS_CACHE", str(tmp_path))
    problem = Problem(1, 6, 5477, 5477, 64, "bfloat16")
    found = door.measured_all([(problem, name, "forward") for name in ("naive", "fa2")])
    for one in found.values():
        if isinstance(one, CountersError) and one.cause in OF_THE_MACHINE:
            pytest.skip(str(one))
        assert one.calibration.passed, one.calibration
    naive, flash = (found[problem, name, "forward", "warm"] for name in ("naive", "fa2"))
    matrix = 6 * 5477**2 * torch.bfloat16.itemsize
    assert naive.total > 3 * matrix - 2 * 60 * 2**20
    assert flash.total < matrix / 10
    assert len(naive.detail) == 3
