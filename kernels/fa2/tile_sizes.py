"""Tile sizes of the forward pass, by element size and head width; a plain table, no tuning at run time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of one tile, and how the compiler spreads it over warps and pipeline stages."""

    block_q: int
    block_k: int
    warps: int
    stages: int


FORWARD = {
    # bytes of an element, padded head_dim
    (2, 16): Tiles(128, 64, 8, 3),
    (2, 32): Tiles(128, 64, 8, 3),
    (2, 64): Tiles(128, 64, 8, 3),
    (2, 128): Tiles(128, 128, 8, 2),
    (2, 256): Tiles(64, 32, 4, 2),
    (4, 16): Tiles(64, 32, 4, 2),
    (4, 32): Tiles(64, 32, 4, 2),
    (4, 64): Tiles(64, 32, 4, 2),
    (4, 128): Tiles(32, 32, 4, 2),
    (4, 256): Tiles(16, 16, 4, 1),
}


def forward_tiles(element_bytes: int, padded_head_dim: int) -> Tiles:
    """The row of the table for this element size and head width (a power of two, 16 to 256)."""
    return FORWARD[element_bytes, padded_head_dim]
