"""What was counted so far, launch by launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.traffic.ledger import KernelTraffic


@dataclass
class Count:
    """Launch by launch: [kernel, bytes read, bytes written]."""

    lines: list[list[Any]] = field(default_factory=list)
    launched: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The arguments of each kernel's newest launch; without values only."""
    integer: int = 0  # without values: what each integer is that is loaded

    @property
    def launches(self) -> list[KernelTraffic]:
        """The launches, in their order."""
        return [KernelTraffic(*line) for line in self.lines]

    def begin(self, kernel: str) -> None:
        """From here on bytes belong to this launch."""
        self.lines.append([kernel, 0, 0])

    def add(self, read: int = 0, written: int = 0) -> None:
        """To the newest launch."""
        self.lines[-1][1] += read
        self.lines[-1][2] += written

    @property
    def newest(self) -> tuple[int, int]:
        """What the newest launch has read and written so far."""
        return self.lines[-1][1], self.lines[-1][2]

    def take(self) -> tuple[int, int]:
        """The same, which is then forgotten."""
        moved = self.newest
        self.lines[-1][1:] = 0, 0
        return moved
