"""NVIDIA's profiler `ncu`: how it is called, what it writes, and what it says when it refuses. Starts nothing."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernels.traffic.ledger import TrafficError

Cache = Literal["cold", "warm"]
CACHES: tuple[Cache, ...] = ("cold", "warm")
CACHE_CONTROL = {"cold": "all", "warm": "none"}
"""cold: caches are emptied before each kernel. warm: they hold what the kernel before has left."""

DRAM_READ, DRAM_WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L2_READ = "l1tex__m_xbar2l1tex_read_bytes.sum"  # what comes to the multiprocessors,
L2_WRITTEN = "l1tex__m_l1tex2xbar_write_bytes.sum"  # and what they send
L2_LOOKED_UP = "lts__t_sectors_srcunit_tex_op_read.sum"
"""What of it L2 had to look up: since Ampere equal requests of neighbouring multiprocessors are merged before they
reach it, so this can be half of what was asked for."""
TIME = "gpu__time_duration.sum"
DRAM_ONLY = (DRAM_READ, DRAM_WRITTEN, TIME)
EVERYTHING = (*DRAM_ONLY, L2_READ, L2_WRITTEN, L2_LOOKED_UP)
PASSES = "profiler__replayer_passes"
SECTOR_BYTES = 32

UNITS = {
    DRAM_READ: ("byte",),
    DRAM_WRITTEN: ("byte",),
    L2_READ: ("byte",),
    L2_WRITTEN: ("byte",),
    L2_LOOKED_UP: ("sector",),
    TIME: ("nsecond", "ns"),  # before ncu 2024, and since
}

MARKER = "flashlens_marker"
"""Name of the kernel that stands before each request in the list of kernels."""

ELSEWHERE = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Where NVIDIA's installers put it without entering it in PATH."""

Cause = Literal[
    "no gpu",
    "no ncu",
    "permission",
    "busy",
    "no library",
    "unsuited",  # this ncu does not fit the GPU or the driver
    "time-out",
    "killed",
    "out of memory",
    "refused",  # by the implementation
    "failed",  # something else went wrong while the kernels ran
    "unreadable",
]


class CountersError(TrafficError):
    """Why the GPU's counters gave nothing: a cause for programs, and the sentence for the screen."""

    def __init__(self, cause: Cause, sentence: str) -> None:
        super().__init__(sentence)
        self.cause = cause


# --- calling it -------------------------------------------------------------------------------------


def find() -> str:
    """The path of `ncu`.

    Raises:
        CountersError: there is none.
    """
    found = shutil.which("ncu")
    for pattern in () if found else ELSEWHERE:
        root = Path(pattern).anchor
        found = max((str(path) for path in Path(root).glob(pattern[len(root) :])), default=found)
    if found is None:
        raise CountersError(
            "no ncu",
            "NVIDIA's profiler ncu, which reads the GPU's memory counters, is not on the PATH; install "
            "Nsight Compute (it comes with the CUDA toolkit).",
        )
    return found


def arguments(cache: Cache, metrics: Sequence[str], log: Path) -> list[str]:
    """What stands between `ncu` and the program to watch."""
    return [
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--clock-control", "none"),  # leave the clocks as they are in use
        *("--profile-from-start", "off", "--target-processes", "application-only"),
        *("--cache-control", CACHE_CONTROL[cache]),
        *("--metrics", ",".join(metrics)),
        *("--log-file", str(log)),
    ]


# --- reading it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """One kernel's line, in bytes; None where something was not asked for."""

    kernel: str
    dram_read: int
    dram_written: int
    l2_read: int | None
    l2_written: int | None
    l2_looked_up: int | None
    time_us: float
    passes: int | None  # how often the kernel was run for it


def launches(log: str, metrics: Sequence[str]) -> list[Launch]:
    """The kernels of `--csv --page raw`, in the order of their launches.

    Raises:
        CountersError: there is no table, no kernel in it, or something in it that is not understood.
    """
    lines = log.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        raise unreadable("no table")
    # Other lines of ncu's own may stand among the rows; all of these begin with ==.
    table = list(csv.reader(line for line in lines[first:] if line and not line.startswith("==")))
    header, below = table[0], table[1:]
    missing = [name for name in ("Kernel Name", *metrics) if name not in header]
    if missing:
        raise CountersError(
            "unsuited",
            f"ncu gave no counter {missing[0]} for this GPU; install a newer Nsight Compute.",
        )
    if not below or any(len(row) != len(header) for row in below):
        raise unreadable("a line that ends early" if below else "no units")
    check_units(dict(zip(header, below[0], strict=True)), metrics)
    if not below[1:]:
        raise no_kernels()
    return [launch(dict(zip(header, row, strict=True)), metrics) for row in below[1:]]


def check_units(units: dict[str, str], metrics: Iterable[str]) -> None:
    """
    Raises:
        CountersError: a unit is not the one that the figures are read in.
    """
    for name in metrics:
        if units[name] not in UNITS[name]:
            raise unreadable(f"{name} in {units[name]!r} instead of {UNITS[name][0]}")


def launch(row: dict[str, str], metrics: Sequence[str]) -> Launch:
    """One row; figures may have commas between their thousands."""

    def figure(name: str) -> float:
        try:
            value = float(row[name].replace(",", ""))
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            raise unreadable(f"{row[name]!r} for {name}")
        return value

    def wanted(name: str, unit: int = 1) -> int | None:
        return round(figure(name)) * unit if name in metrics else None

    return Launch(
        row["Kernel Name"],
        round(figure(DRAM_READ)),
        round(figure(DRAM_WRITTEN)),
        wanted(L2_READ),
        wanted(L2_WRITTEN),
        wanted(L2_LOOKED_UP, SECTOR_BYTES),
        figure(TIME) / 1e3,
        round(figure(PASSES)) if row.get(PASSES) else None,
    )


def split(found: Sequence[Launch]) -> list[list[Launch]]:
    """The kernels after each marker, without it.

    Raises:
        CountersError: a kernel stands before the first marker.
    """
    parts: list[list[Launch]] = []
    for one in found:
        if one.kernel.startswith(MARKER):
            parts.append([])
        elif parts:
            parts[-1].append(one)
        else:
            raise unreadable(f"the kernel {one.kernel} before the first marker")
    return parts


def passes(found: Iterable[Launch]) -> int | None:
    """How often the kernel that needed most runs was run, or None where ncu does not say."""
    return max((one.passes for one in found if one.passes is not None), default=None)


# --- when it refuses --------------------------------------------------------------------------------

SAYINGS: tuple[tuple[str, Cause, str], ...] = (
    (
        "ERR_NVGPUCTRPERM",
        "permission",
        "The driver lets only administrators read the GPU's counters: run Flashlens as root, give its "
        "container --cap-add=SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0.",
    ),
    (
        "driver resource was unavailable",
        "busy",
        "Another profiler, perhaps DCGM, holds the GPU's counters: stop it (dcgmi profile --pause), then "
        "measure again.",
    ),
    (
        "LibraryNotLoaded",
        "no library",
        "The driver's profiling library cannot be loaded here, as in some containers: give the container "
        "NVIDIA_DRIVER_CAPABILITIES=all, or measure outside it.",
    ),
    *(
        (
            saying,
            "unsuited",
            "This ncu does not fit the GPU or its driver; install the Nsight Compute that comes with the "
            "driver's CUDA version.",
        )
        for saying in ("not compatible with Nsight Compute", "is not supported on this device")
    ),
)


def refusal(text: str) -> CountersError | None:
    """What ncu says in this text when it may not or cannot measure, or None."""
    for saying, cause, sentence in SAYINGS:
        if saying in text:
            return CountersError(cause, sentence)
    return no_kernels() if "No kernels were profiled" in text else None


def no_kernels() -> CountersError:
    return CountersError(
        "failed", "ncu saw no kernel, so nothing was measured; install a newer Nsight Compute."
    )


def unreadable(what: str) -> CountersError:
    return CountersError(
        "unreadable",
        f"ncu's answer cannot be read ({what}); measure again, and if that does not help install another "
        "Nsight Compute.",
    )
