"""What the GPU's own counters say that a kernel moved: `ncu` over a replay of exactly that launch."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch

from kernels.bench import record
from kernels.problem import Problem
from kernels.traffic import kept, ncu, profiled
from kernels.traffic.ledger import Direction, KernelTraffic, Traffic
from kernels.traffic.ncu import CACHES, Cache, CountersError, Launch
from kernels.traffic.profiled import Calibration, Request, Run

PATIENCE = 4
"""Time-outs that one waits for others before giving up."""


@dataclass(frozen=True, kw_only=True)
class Measured(Traffic):
    """DRAM bytes of one call, and how they were got.

    Under "cold" each kernel starts with empty caches; under "warm" it finds what the kernel before it left, and up
    to L2's size of what it wrote may still be there.
    """

    cache: Cache
    l2_read: int  # asked of L2 by the multiprocessors, where L1 had it not
    l2_written: int
    l2_looked_up: int  # what of l2_read was left after equal requests of neighbours had been merged
    time_us: float  # under the profiler, all kernels together; timing is the benchmark's task
    calibration: Calibration
    passes: int | None  # runs of a kernel that its DRAM figures took; None where ncu did not say
    gpu: str
    driver: str
    ncu: str
    date: str  # ISO, UTC
    from_cache: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`, also after a way through JSON.

        Raises:
            TypeError, KeyError: something else.
        """
        detail = tuple(KernelTraffic(**one) for one in values["detail"])
        calibration = Calibration(**values["calibration"])
        return cls(**{**values, "detail": detail, "calibration": calibration})


@dataclass(frozen=True)
class Here:
    """What a measurement depends on besides the problem."""

    program: str  # the path of ncu, which is no part of the key
    gpu: str
    driver: str
    ncu: str

    def key(self, request: Request, cache: Cache, source: str) -> dict[str, Any]:
        problem, implementation, direction = request
        return {
            "format": kept.FORMAT_VERSION,
            "problem": asdict(problem),
            "implementation": implementation,
            "direction": direction,
            "cache": cache,
            "source": source,
            "gpu": self.gpu,
            "driver": self.driver,
            "ncu": self.ncu,
            "torch": record.version("torch"),
            "triton": record.version("triton"),
        }


Found = dict[tuple[Problem, str, Direction, Cache], Measured | CountersError]


def measured(
    problem: Problem,
    implementation: str,
    direction: Direction = "forward",
    cache: Cache = "cold",
    timeout_s: float = 60.0,
) -> Measured:
    """DRAM and L2 bytes of one call, from this GPU's counters.

    Raises:
        TrafficError: they cannot be had; it says why and what to do.
    """
    request = (problem, implementation, direction)
    found = measured_all([request], [cache], timeout_s)[*request, cache]
    if isinstance(found, CountersError):
        raise found
    return found


def measured_all(
    requests: Iterable[Request], caches: Sequence[Cache] = CACHES, timeout_s: float = 60.0
) -> Found:
    """The same of many, with one run of `ncu` for each cache mode -> a measurement or the reason against it, each.

    `timeout_s` is for each run of `ncu`. Waits while another measurement runs here. What was measured before with
    the same kernels, GPU, driver and versions is read from disk.
    """
    asked = list(dict.fromkeys(requests))
    try:
        here, source = this_machine(), kept.source_hash()
    except CountersError as fault:
        return {(*request, cache): fault for cache in caches for request in asked}
    found: Found = {}
    fault: CountersError | None = None  # of the machine, so it holds for all that is left
    for cache in caches:
        keys = {request: here.key(request, cache, source) for request in asked}
        got: dict[Request, Measured | CountersError] = {**known(keys)}
        if len(got) < len(asked) and fault is None:
            try:
                with kept.in_line(PATIENCE * timeout_s):
                    got = {**known(keys)}  # somebody may have measured it while we waited
                    new = [request for request in asked if request not in got]
                    cold = {request: found.get((*request, "cold")) for request in new}
                    got |= in_one_run(new, cache, here, timeout_s, cold) if new else {}
                    keep((keys[request], got[request]) for request in new)
            except CountersError as refusal:
                fault = refusal
        for request in asked:
            found[*request, cache] = got.get(request) or fault  # pyright: ignore[reportArgumentType] - one of the two is there
    return found


# --- this machine -----------------------------------------------------------------------------------


def gpu_name() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def this_machine() -> Here:
    """
    Raises:
        CountersError: it has no GPU or no ncu.
    """
    gpu = gpu_name()
    if gpu is None:
        raise CountersError(
            "no gpu",
            "There is no NVIDIA GPU here that torch can use, so no counters of its memory; the bytes that the "
            "kernels ask for can be counted without one.",
        )
    program = ncu.find()
    version = re.search(r"Version (\d[\d.]*)", record.output_of(program, "--version"))
    if version is None:
        raise CountersError(
            "failed", f"{program} does not say its version; install Nsight Compute again."
        )
    return Here(program, gpu, record.driver(), version[1])


# --- kept -------------------------------------------------------------------------------------------


def read(key: kept.Key) -> Measured | None:
    """What was measured before, if it is whole."""
    values = kept.read(key)
    try:
        return replace(Measured.from_json(values), from_cache=True) if values else None
    except (TypeError, KeyError, AttributeError):
        return None


def known(keys: Mapping[Request, kept.Key]) -> dict[Request, Measured]:
    """Those that were measured before."""
    found = {request: read(key) for request, key in keys.items()}
    return {request: one for request, one in found.items() if one is not None}


def keep(found: Iterable[tuple[kept.Key, Measured | CountersError]]) -> None:
    """What can be trusted; a refusal may have gone by the next time."""
    for key, one in found:
        if isinstance(one, Measured) and one.calibration.passed:
            kept.write(key, asdict(one))


# --- one run of ncu ---------------------------------------------------------------------------------


def in_one_run(
    requests: Sequence[Request],
    cache: Cache,
    here: Here,
    timeout_s: float,
    cold: Mapping[Request, Measured | CountersError | None],
) -> dict[Request, Measured | CountersError]:
    """All of them in one replay.

    Warm figures must come from a kernel's first run, since the second one finds what the first has left. So under
    "warm" DRAM is measured alone where ncu needs more runs for all counters. What a kernel asks of L2 does not
    depend on what the caches hold: where all were measured `cold`, it is taken from there, and one run is saved.

    Raises:
        CountersError: nothing was measured.
    """
    asked = [one for request in requests if isinstance(one := cold[request], Measured)]
    if cache == "warm" and len(asked) == len(requests):
        dram = profiled.run(here.program, requests, cache, ncu.DRAM_ONLY, timeout_s)
        asks = [L2(one.l2_read, one.l2_written, one.l2_looked_up) for one in asked]
        parts = [part if isinstance(part, CountersError) else None for part in dram.parts]
    else:
        run = profiled.run(here.program, requests, cache, ncu.EVERYTHING, timeout_s)
        dram = run
        if cache == "warm" and run.passes != 1:
            dram = profiled.run(here.program, requests, cache, ncu.DRAM_ONLY, timeout_s)
        asks = [L2.of(part) for part in run.parts]
        parts = [
            next((p for p in pair if isinstance(p, CountersError)), None)
            for pair in zip(run.parts, dram.parts, strict=True)
        ]
    found: dict[Request, Measured | CountersError] = {}
    for request, bad, l2, part in zip(requests, parts, asks, dram.parts, strict=True):
        found[request] = bad or measurement(l2, part, dram, cache, here)  # pyright: ignore[reportArgumentType] - it is not bad
    return found


@dataclass(frozen=True)
class L2:
    """What the kernels of a call ask of L2, in bytes."""

    read: int = 0
    written: int = 0
    looked_up: int = 0

    @classmethod
    def of(cls, part: Sequence[Launch] | CountersError) -> Self:
        """The sum over the launches; nothing where there are none."""
        if isinstance(part, CountersError):
            return cls()
        return cls(
            sum(one.l2_read or 0 for one in part),
            sum(one.l2_written or 0 for one in part),
            sum(one.l2_looked_up or 0 for one in part),
        )


def measurement(
    l2: L2, dram_part: Sequence[Launch], run: Run, cache: Cache, here: Here
) -> Measured:
    detail = tuple(KernelTraffic(one.kernel, one.dram_read, one.dram_written) for one in dram_part)
    return Measured(
        sum(one.dram_read for one in dram_part),
        sum(one.dram_written for one in dram_part),
        "measured",
        detail,
        cache=cache,
        l2_read=l2.read,
        l2_written=l2.written,
        l2_looked_up=l2.looked_up,
        time_us=sum(one.time_us for one in dram_part),
        calibration=run.calibration,
        passes=run.passes,
        gpu=here.gpu,
        driver=here.driver,
        ncu=here.ncu,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
