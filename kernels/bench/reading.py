"""What is known of one implementation on one problem: time, memory, traffic, energy, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from kernels.problem import Problem

Bytes = tuple[int, int]
"""Read, written."""


@dataclass(frozen=True)
class Reading:
    """None where nothing was measured; `refused` then says why, if it was tried.

    The keys of `refused` are "time", "memory", "counted", "hbm" and "energy"; the values are sentences for the
    screen.
    """

    problem: Problem
    implementation: str
    direction: str = "forward"
    time_us: float | None = None  # median of one call
    time_low_us: float | None = None
    time_high_us: float | None = None
    samples: int = 0
    timed_by: str = ""  # "graph", "events" or "benchmark"
    peak_bytes: int | None = None  # beyond what was there before the call
    peak_by: str = ""  # "allocator" on a GPU, "process" on a CPU
    counted: Bytes | None = None  # asked for by the kernel's loads and stores
    hbm_cold: Bytes | None = None  # DRAM, each kernel with empty caches
    hbm_warm: Bytes | None = None  # DRAM, back to back
    hbm_average: float | None = None  # DRAM, both ways, by NVML's average share of the bandwidth
    l2: Bytes | None = None  # what the multiprocessors asked of L2
    energy_mj: float | None = None  # of one call
    refused: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False  # somebody else's work ran on this machine meanwhile
    machine: str = ""  # the GPU's or the processor's name
    when: str = ""  # date, and time where it was measured here
    versions: str = ""  # torch, Triton, driver, commit

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`, also after a way through JSON, which has no tuples."""
        found = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        found["problem"] = Problem(**values["problem"])
        for name in ("counted", "hbm_cold", "hbm_warm", "l2"):
            if found.get(name) is not None:
                found[name] = tuple(found[name])
        return cls(**found)
