"""What NVIDIA's management library tells of the whole GPU: energy, and the share of its memory bandwidth in use.

Both are averages over about a second in which the work runs again and again, everything else that the GPU does
meanwhile included. `pynvml` is imported only here and only when it is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernels.bench.timing import MOST_LAUNCHES, Work, captured, rough_time_us
from kernels.traffic.ledger import TrafficError

SECONDS = 1.0
BATCH_US = 30_000.0
"""How long the GPU works between two looks at the counter."""

LONGEST_WAIT_S = 1.0
"""For the energy counter to move; drivers renew it every 20 to 100 ms."""


@dataclass(frozen=True)
class BandwidthAverage:
    """Bytes read and written together, from the average share of the bandwidth: no count, and caches are warm."""

    bytes_per_call: float
    percent: float  # of the largest bandwidth, over the whole time
    largest_bytes_per_s: float  # memory clock x bus width, as the driver gives them
    seconds: float
    calls: int


@dataclass(frozen=True)
class Batch:
    """Some calls that are waited for."""

    run: Work
    calls: int


def energy_mj(work: Work, device: torch.device, seconds: float = SECONDS) -> float:
    """Millijoules of one call: of the whole GPU, what it draws when idle included.

    Call it on a stream of one's own, as `timing.sampler` wants it, so that the calls can be replayed from a
    graph; otherwise the pauses in which Python launches them count too.

    Raises:
        TrafficError: it cannot be had; it says why.
        torch.OutOfMemoryError: from the work itself.
    """
    with opened(device, "energy per call") as (nvml, gpu):
        read = nvml.nvmlDeviceGetTotalEnergyConsumption
        read(gpu)  # refuses here, before the work runs
        batch = batch_of(work)
        start_mj, _ = next_step(lambda: read(gpu), batch, LONGEST_WAIT_S)
        calls, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            batch.run()
            calls += batch.calls
        end_mj, more = next_step(lambda: read(gpu), batch, LONGEST_WAIT_S)
    return (end_mj - start_mj) / (calls + more * batch.calls)


def next_step(read: Any, batch: Batch, patience_s: float) -> tuple[int, int]:
    """Work until the counter moves -> its new state, and how many batches that took.

    Raises:
        TrafficError: it does not move.
    """
    before, until, batches = read(), time.monotonic() + patience_s, 0
    while time.monotonic() < until:
        batch.run()
        batches += 1
        now = read()
        if now != before:
            return now, batches
    raise TrafficError("This GPU's energy counter stands still, so energy per call is not known.")


def bandwidth_average(
    work: Work, device: torch.device, seconds: float = SECONDS
) -> BandwidthAverage:
    """The average memory traffic of one call, where the profiler's counters are refused.

    Raises:
        TrafficError: it cannot be had; it says why.
        torch.OutOfMemoryError: from the work itself.
    """
    with opened(device, "the average of its memory traffic") as (nvml, gpu):
        if not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            raise TrafficError(
                "Only Hopper (H100) and later GPUs tell the average of their memory traffic; let ncu read the "
                "counters instead."
            )
        largest = bandwidth(nvml, gpu)
        batch = batch_of(work)
        with samples(nvml) as (first, second):
            nvml.nvmlGpmSampleGet(gpu, first)
            start, calls = time.monotonic(), 0
            while time.monotonic() < start + seconds:
                batch.run()
                calls += batch.calls
            nvml.nvmlGpmSampleGet(gpu, second)
            took_s = time.monotonic() - start
            percent = dram_percent(nvml, first, second)
    moved = percent / 100 * largest * took_s
    return BandwidthAverage(moved / calls, percent, largest, took_s, calls)


def bandwidth(nvml: Any, gpu: Any) -> float:
    """Bytes a second at the highest memory clock; two transfers a cycle, as the driver counts cycles."""
    clock_hz = 1e6 * nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM)
    return 2 * clock_hz * nvml.nvmlDeviceGetMemoryBusWidth(gpu) / 8


@contextmanager
def samples(nvml: Any) -> Iterator[tuple[Any, Any]]:
    """Two samples, given back at the end."""
    both = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    try:
        yield both
    finally:
        for one in both:
            nvml.nvmlGpmSampleFree(one)


def dram_percent(nvml: Any, first: Any, second: Any) -> float:
    """The share of the largest DRAM bandwidth in use between the two samples.

    Raises:
        TrafficError: the driver gives none.
    """
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = 1
    asked.sample1, asked.sample2 = first, second
    asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
    nvml.nvmlGpmMetricsGet(asked)
    metric = asked.metrics[0]
    if metric.nvmlReturn != nvml.NVML_SUCCESS or not math.isfinite(metric.value):
        raise TrafficError(
            "The driver gives no figure for this GPU's memory bandwidth; let ncu read the counters instead."
        )
    return metric.value


# --- the library and its GPU ------------------------------------------------------------------------


@contextmanager
def opened(device: torch.device, what: str) -> Iterator[tuple[Any, Any]]:
    """The library, and its handle of this GPU. Its errors become sentences.

    Raises:
        TrafficError: there is no such GPU or library, or it refuses.
    """
    if device.type != "cuda":
        raise TrafficError(f"Without an NVIDIA GPU {what} is not known here.")
    try:
        import pynvml as nvml
    except ImportError:
        raise TrafficError(
            f"The package nvidia-ml-py, which tells {what}, is not installed; it is in requirements.txt."
        ) from None
    try:
        nvml.nvmlInit()
        try:
            yield nvml, nvml.nvmlDeviceGetHandleByUUID(uuid_of(device))
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise TrafficError(f"This GPU's driver does not tell {what} ({error}).") from None


def uuid_of(device: torch.device) -> str:
    """By which CUDA and the driver mean the same GPU, whatever CUDA_VISIBLE_DEVICES says."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def batch_of(work: Work) -> Batch:
    """The work, so often that it keeps the GPU busy for BATCH_US; from a graph where it can be captured."""
    rough_us = max(rough_time_us(work), 1.0)
    calls = max(1, min(MOST_LAUNCHES, int(BATCH_US / rough_us)))
    launch = repeated(work, calls)

    def run() -> None:
        launch()
        torch.cuda.current_stream().synchronize()

    run()
    return Batch(run, calls)


def repeated(work: Work, calls: int) -> Work:
    """So many calls; captured once, except on the default stream, where CUDA does not allow it."""

    def one_by_one() -> None:
        for _ in range(calls):
            work()

    if torch.cuda.current_stream() == torch.cuda.default_stream():
        return one_by_one
    try:
        return captured(work, calls, None)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # it waits for the GPU inside, say; a broken GPU fails again below
        torch.cuda.synchronize()
        return one_by_one
