"""Tile sizes of FlashAttention-2."""

from __future__ import annotations

from kernels.tile_sizes import Table, Tiles

FORWARD: Table = {
    ("any", 2, 16): Tiles(128, 64, 8, 3),
    ("any", 2, 32): Tiles(128, 64, 8, 3),
    ("any", 2, 64): Tiles(128, 64, 8, 3),
    ("any", 2, 128): Tiles(128, 64, 8, 2),
    ("any", 2, 256): Tiles(64, 32, 4, 2),
    ("any", 4, 16): Tiles(64, 32, 4, 2),
    ("any", 4, 32): Tiles(64, 32, 4, 2),
    ("any", 4, 64): Tiles(64, 32, 4, 2),
    ("any", 4, 128): Tiles(32, 32, 4, 2),
    ("any", 4, 256): Tiles(16, 16, 4, 1),
    ("sm_90", 2, 128): Tiles(128, 128, 8, 2),
}
