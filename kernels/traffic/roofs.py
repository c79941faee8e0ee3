"""The two roofs of a roofline on this machine, and the sizes of the memory on the chip.

Williams, Waterman and Patterson 2009: a kernel can be no faster than its arithmetic allows, nor than its bytes.
"""

from __future__ import annotations

import datetime
import statistics
import time
from dataclasses import dataclass

import psutil
import torch

from kernels.bench import record
from kernels.bench.timing import Work, elapsed_us

COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}
"""Far larger than any cache."""

SIDE = {"cuda": 8192, "cpu": 2048}
"""Of the square matrices."""

SAMPLES = 10
FEWEST_SAMPLES = 3
BUDGET_S = 0.5
"""For each roof, warm-up not counted."""


@dataclass(frozen=True)
class Roofs:
    """What a plain copy and a plain matrix product reach, as medians."""

    bytes_per_s: float  # read and written together
    flops_per_s: float
    dtype: str  # of the matrix product
    machine: str
    when: str  # ISO, UTC


@dataclass(frozen=True)
class OnChip:
    """Memory that is on the chip of a GPU."""

    sram_bytes_per_sm: int  # shared memory of one multiprocessor
    sms: int
    l2_bytes: int


H200_ON_CHIP = OnChip(sram_bytes_per_sm=233_472, sms=132, l2_bytes=60 * 2**20)
"""Recorded on an NVIDIA H200, from torch's device properties (torch 2.11, driver 580); one program can have 1 KiB
less than a multiprocessor's 228 KiB of shared memory."""


def measure_roofs(device: torch.device) -> Roofs:
    """A large copy and a matrix product (bfloat16 on a GPU, float32 on a CPU), in about a second each.

    Raises:
        torch.OutOfMemoryError: the GPU has less than some hundred MB free.
    """
    dtype = product_dtype(device)
    return Roofs(
        bytes_per_s=copied_bytes_per_s(device),
        flops_per_s=product_flops_per_s(device, dtype),
        dtype=str(dtype).removeprefix("torch."),
        machine=machine(device),
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def on_chip(device: torch.device) -> OnChip | None:
    """As the driver tells it; None for what is no GPU."""
    if device.type != "cuda":
        return None
    found = torch.cuda.get_device_properties(device)
    return OnChip(
        found.shared_memory_per_multiprocessor, found.multi_processor_count, found.L2_cache_size
    )


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {record.cpu_name()}"


def copied_bytes_per_s(device: torch.device) -> float:
    """Bytes read plus bytes written. A CPU may fetch a line before it writes it; that is not counted."""
    count = min(COPY_BYTES[device.type], free_bytes(device) // 4) // 4
    source = torch.ones(max(count, 1), dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / median_s(lambda: target.copy_(source), device)


def product_flops_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """2 n^3 operations on random numbers: on zeros a GPU draws less power and runs faster."""
    side = SIDE[device.type]
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randn(side, side, generator=generator, device=device, dtype=dtype) for _ in range(2)
    )
    result = torch.empty_like(left)
    return 2 * side**3 / median_s(lambda: torch.mm(left, right, out=result), device)


def product_dtype(device: torch.device) -> torch.dtype:
    """What the matrix units take; before compute capability 8.0 they take no bfloat16."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def median_s(work: Work, device: torch.device) -> float:
    """Of up to SAMPLES calls one by one, fewer where they take longer than the budget."""
    work()
    once_s = seconds_of(work, device)
    affordable = int(min(BUDGET_S / max(once_s, 1e-9), SAMPLES))
    return statistics.median(
        seconds_of(work, device) for _ in range(max(FEWEST_SAMPLES, affordable))
    )


def seconds_of(work: Work, device: torch.device) -> float:
    """One call; on a GPU after another one, so that it does not wait for Python."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return 1e-6 * elapsed_us(work, lead_in=True)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
