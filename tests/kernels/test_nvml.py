# ruff: noqa: N802 - the names of the played library are its own
"""Energy and average bandwidth, from a played NVML everywhere and from the real one on a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.traffic import nvml
from kernels.traffic.ledger import TrafficError
from kernels.traffic.nvml import Batch

GPU = torch.device("cuda")
CALLS = 20


class PlayedError(Exception):
    """pynvml's base of all errors."""


class Played:
    """A GPU that draws 300 W, and half of its bandwidth, in a time of its own.

    A batch of 20 calls takes 30 ms; the energy counter is renewed every 100 ms, as on a real one.
    """

    NVML_CLOCK_MEM, NVML_SUCCESS, NVML_GPM_METRIC_DRAM_BW_UTIL = 2, 0, 10
    NVML_GPM_METRICS_GET_VERSION = 1
    NVMLError = PlayedError

    def __init__(self) -> None:
        self.now_s, self.open, self.kept, self.batches = 100.0, 0, 0, 0
        self.refuses, self.stands_still, self.hopper = "", False, True
        self.metric_return, self.percent = 0, 50.0

    def call(self, name: str) -> None:
        if self.refuses == name:
            raise PlayedError("Not Supported")
        assert self.open == (name != "nvmlInit"), f"{name} outside of nvmlInit and nvmlShutdown"

    def nvmlInit(self) -> None:
        self.call("nvmlInit")
        self.open = 1

    def nvmlShutdown(self) -> None:
        self.open = 0

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.call("nvmlDeviceGetHandleByUUID")
        assert uuid == "GPU-played"
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: str) -> int:
        self.call("nvmlDeviceGetTotalEnergyConsumption")
        assert gpu == "handle"
        renewed_s = 0 if self.stands_still else int(self.now_s * 10) / 10
        return round(300_000 * renewed_s)

    def nvmlDeviceGetMaxClockInfo(self, gpu: str, clock: int) -> int:
        self.call("nvmlDeviceGetMaxClockInfo")
        assert clock == self.NVML_CLOCK_MEM
        return 3201

    def nvmlDeviceGetMemoryBusWidth(self, gpu: str) -> int:
        return 6144

    def nvmlGpmQueryDeviceSupport(self, gpu: str) -> Any:
        return SimpleNamespace(isSupportedDevice=self.hopper)

    def nvmlGpmSampleAlloc(self) -> dict:
        self.kept += 1
        return {}

    def nvmlGpmSampleFree(self, sample: dict) -> None:
        self.kept -= 1

    def nvmlGpmSampleGet(self, gpu: str, sample: dict) -> None:
        self.call("nvmlGpmSampleGet")
        sample["at"] = self.now_s

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace()])

    def nvmlGpmMetricsGet(self, asked: Any) -> None:
        self.call("nvmlGpmMetricsGet")
        assert (asked.version, asked.numMetrics) == (1, 1)
        assert asked.metrics[0].metricId == self.NVML_GPM_METRIC_DRAM_BW_UTIL
        assert asked.sample2["at"] > asked.sample1["at"]
        asked.metrics[0].nvmlReturn = self.metric_return
        asked.metrics[0].value = self.percent

    def work(self) -> None:
        assert self.open, "the library is open while the work runs"
        self.now_s += 0.030
        self.batches += 1


@pytest.fixture
def played(monkeypatch) -> Played:
    found = Played()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    monkeypatch.setattr(nvml, "uuid_of", lambda device: "GPU-played")
    monkeypatch.setattr(nvml, "batch_of", lambda work: Batch(work, CALLS))
    monkeypatch.setattr(nvml.time, "monotonic", lambda: found.now_s)
    return found


def refusal(measure, played: Played, device: torch.device = GPU) -> str:
    with pytest.raises(TrafficError) as caught:
        measure(played.work, device)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert played.open == 0
    assert played.kept == 0
    return sentence


def test_energy_of_one_call(played):
    """300 W for 1.5 ms each, within the grain of a batch, although the counter moves in steps of 100 ms."""
    assert nvml.energy_mj(played.work, GPU) == pytest.approx(450, rel=0.03)
    assert played.open == 0


def test_energy_takes_about_a_second(played):
    nvml.energy_mj(played.work, GPU, seconds=1.0)
    assert 1.0 < played.now_s - 100.0 < 1.4


@pytest.mark.parametrize("missing", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
@pytest.mark.parametrize("measure", [nvml.energy_mj, nvml.bandwidth_average])
def test_a_library_that_refuses(played, measure, missing):
    played.refuses = missing
    assert "Not Supported" in refusal(measure, played)
    played.refuses = ""
    assert measure(played.work, GPU)


def test_a_gpu_that_counts_no_energy(played):
    played.refuses = "nvmlDeviceGetTotalEnergyConsumption"
    assert "does not tell energy per call (Not Supported)" in refusal(nvml.energy_mj, played)
    assert played.batches == 0, "it is asked before the work runs"


def test_a_counter_that_stands_still(played):
    played.stands_still = True
    assert "stands still" in refusal(nvml.energy_mj, played)


@pytest.mark.parametrize("measure", [nvml.energy_mj, nvml.bandwidth_average])
def test_without_the_package(played, measure, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in refusal(measure, played)


@pytest.mark.parametrize("measure", [nvml.energy_mj, nvml.bandwidth_average])
def test_without_a_gpu(played, measure):
    assert "Without an NVIDIA GPU" in refusal(measure, played, torch.device("cpu"))


def test_average_bandwidth(played):
    found = nvml.bandwidth_average(played.work, GPU, seconds=1.0)
    assert found.largest_bytes_per_s == pytest.approx(4.917e12, rel=1e-3)
    assert found.percent == 50.0
    assert found.calls == CALLS * played.batches
    assert found.bytes_per_call == pytest.approx(0.5 * 4.917e12 * 0.030 / CALLS, rel=1e-3)
    assert played.kept == 0, "both samples are given back"


def test_no_average_before_hopper(played):
    played.hopper = False
    assert "Only Hopper" in refusal(nvml.bandwidth_average, played)


@pytest.mark.parametrize(("returned", "percent"), [(3, 50.0), (0, float("nan"))])
def test_an_average_that_the_driver_does_not_give(played, returned, percent):
    played.metric_return, played.percent = returned, percent
    assert "gives no figure" in refusal(nvml.bandwidth_average, played)


def test_samples_are_given_back_after_a_failure(played):
    played.refuses = "nvmlGpmSampleGet"
    refusal(nvml.bandwidth_average, played)


def test_out_of_memory_of_the_work_passes_through(played):
    def work():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        nvml.energy_mj(work, GPU)
    assert played.open == 0


def test_the_real_package_has_these_names():
    """What the played library has is in the real one too, by the same names."""
    real = pytest.importorskip("pynvml")
    names = [name for name in vars(Played) if name.lower().startswith(("nvml", "c_nvml"))]
    assert len(names) > 14
    assert [name for name in names if not hasattr(real, name)] == []
    for name in ("NVML_CLOCK_MEM", "NVML_SUCCESS", "NVML_GPM_METRIC_DRAM_BW_UTIL"):
        assert getattr(real, name) == getattr(Played, name)


@pytest.mark.gpu
def test_the_real_gpu():
    source = torch.ones(2**28, device="cuda")
    target = torch.empty_like(source)

    def copy():
        target.copy_(source)

    with torch.cuda.stream(torch.cuda.Stream()):
        energy_mj = nvml.energy_mj(copy, GPU)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        copy()
        end.record()
        end.synchronize()
        watts = energy_mj / start.elapsed_time(end)
        assert 50 < watts < 2000
        try:
            found = nvml.bandwidth_average(copy, GPU)
        except TrafficError as refusal:
            pytest.skip(str(refusal))
    assert found.bytes_per_call == pytest.approx(2 * source.nbytes, rel=0.15)
