"""What a run of kernels moves through memory, kernel by kernel, and how the figure was got."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

Source = Literal["formula", "counted", "measured", "recorded"]
"""formula: from the loops, by hand. counted: at the kernel's own loads and stores. measured: by this GPU's
counters. recorded: measured before, on another machine."""

Direction = Literal["forward", "backward", "forward+backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "forward+backward")


class TrafficError(RuntimeError):
    """Why there is no figure, in one sentence that says what to do."""


@dataclass(frozen=True)
class KernelTraffic:
    """Bytes of one launch."""

    kernel: str  # the kernel's own name
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Traffic:
    """Bytes of all launches together. `detail` lists them in their order."""

    bytes_read: int
    bytes_written: int
    source: Source
    detail: tuple[KernelTraffic, ...] = ()

    @classmethod
    def of(cls, source: Source, detail: Iterable[KernelTraffic]) -> Self:
        """The sum of the launches."""
        parts = tuple(detail)
        read, written = sum(p.bytes_read for p in parts), sum(p.bytes_written for p in parts)
        return cls(read, written, source, parts)

    @property
    def total(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written
