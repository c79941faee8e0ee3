"""Tile sizes: plain tables. `python -m kernels.bench tune` finds rows; nothing is tuned while a user waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of one tile, and how the compiler spreads it over warps and pipeline stages."""

    block_q: int
    block_k: int
    warps: int
    stages: int


Table = Mapping[tuple[str, int, int], Tiles]
"""(GPU "sm_90", or "any"; bytes of an element; head_dim padded to a power of two) -> tiles.

A row "sm_90 odd" stands before "sm_90", and "any odd" before "any", for a head_dim that does not fill
its tile: masks cost registers.

The rows "any" are safe on every GPU from compute capability 8.0: they fit in 99 KB of shared memory.
"""


def pick(table: Table, device: torch.device, element_bytes: int, head_dim: int) -> Tiles:
    """The row for this GPU, or the safe one where this GPU was not tuned."""
    return CHOSEN.get() or row_for(
        table, PLAYED.get() or architecture(device), element_bytes, head_dim
    )


def row_for(table: Table, gpu: str, element_bytes: int, head_dim: int) -> Tiles:
    """The row that a GPU of this architecture takes, "sm_90"; "any" for one that was not tuned."""
    width = padded(head_dim)
    rows = [gpu, "any"] if head_dim == width else [f"{gpu} odd", gpu, "any odd", "any"]
    return next(
        table[row, element_bytes, width] for row in rows if (row, element_bytes, width) in table
    )


PLAYED: ContextVar[str | None] = ContextVar("PLAYED", default=None)
"""Whose rows `pick` takes instead of the device's own, in this thread."""


@contextmanager
def as_if_on(gpu: str | None) -> Iterator[None]:
    """Launches inside take the rows of this architecture, whatever they run on; None changes nothing."""
    before = PLAYED.set(gpu)
    try:
        yield
    finally:
        PLAYED.reset(before)


CHOSEN: ContextVar[Tiles | None] = ContextVar("CHOSEN", default=None)
"""What `pick` takes instead of any row, in this thread."""


@contextmanager
def with_tiles(tiles: Tiles | None) -> Iterator[None]:
    """Launches inside take these tiles, whatever the tables say; None changes nothing.

    Kernels that do not ask a table keep their own: naive's softmax takes whole rows.
    """
    before = CHOSEN.set(tiles or CHOSEN.get())
    try:
        yield
    finally:
        CHOSEN.reset(before)


@cache
def architecture(device: torch.device) -> str:
    """ "sm_90" for an H100 or H200; "any" for the interpreter on the CPU."""
    if device.type != "cuda":
        return "any"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def padded(head_dim: int) -> int:
    """The width of a tile: the next power of two, at least 16, which a matrix unit wants."""
    return max(16, 1 << max(head_dim - 1, 0).bit_length())
