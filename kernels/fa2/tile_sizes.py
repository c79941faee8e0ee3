"""Tile sizes of FlashAttention-2.

The rows "sm_90" for widths 64 and 128 were the fastest of about ten tried on an H200; those for 256 and for
odd widths were chosen because they do not spill, and were not timed.
"""

from __future__ import annotations

from kernels.tile_sizes import Table, Tiles

FORWARD: Table = {
    ("any", 2, 16): Tiles(64, 64, 4, 3),
    ("any", 2, 32): Tiles(64, 64, 4, 3),
    ("any", 2, 64): Tiles(64, 64, 4, 3),
    ("any odd", 2, 64): Tiles(64, 32, 4, 3),
    ("any", 2, 128): Tiles(128, 32, 8, 2),
    ("any", 2, 256): Tiles(64, 32, 8, 2),
    ("any", 4, 16): Tiles(64, 32, 4, 2),
    ("any", 4, 32): Tiles(64, 32, 4, 2),
    ("any", 4, 64): Tiles(64, 32, 8, 2),
    ("any odd", 4, 64): Tiles(32, 32, 8, 2),
    ("any", 4, 128): Tiles(16, 32, 8, 2),
    ("any", 4, 256): Tiles(16, 16, 4, 1),
    ("sm_90 odd", 2, 64): Tiles(64, 64, 4, 3),
    ("sm_90", 2, 128): Tiles(64, 64, 4, 3),
    ("sm_90", 2, 256): Tiles(128, 64, 8, 2),
}

BACKWARD_KEYS: Table = {
    ("any", 2, 16): Tiles(32, 128, 4, 3),
    ("any", 2, 32): Tiles(32, 128, 4, 3),
    ("any", 2, 64): Tiles(32, 64, 4, 3),
    ("any odd", 2, 64): Tiles(32, 64, 4, 2),
    ("any", 2, 128): Tiles(32, 64, 4, 2),
    ("any", 2, 256): Tiles(16, 32, 4, 1),
    ("any", 4, 16): Tiles(32, 32, 4, 2),
    ("any", 4, 32): Tiles(32, 32, 4, 2),
    ("any", 4, 64): Tiles(32, 32, 8, 2),
    ("any", 4, 128): Tiles(16, 32, 8, 1),
    ("any", 4, 256): Tiles(16, 16, 8, 1),
    ("sm_90", 2, 64): Tiles(64, 64, 4, 3),
    ("sm_90 odd", 2, 64): Tiles(64, 64, 8, 2),
    ("sm_90", 2, 128): Tiles(32, 64, 4, 3),
    ("sm_90", 2, 256): Tiles(64, 32, 8, 1),
}

BACKWARD_QUERIES: Table = {
    ("any", 2, 16): Tiles(64, 64, 4, 2),
    ("any", 2, 32): Tiles(64, 64, 4, 2),
    ("any", 2, 64): Tiles(64, 32, 4, 2),
    ("any", 2, 128): Tiles(64, 32, 4, 2),
    ("any", 2, 256): Tiles(32, 16, 4, 1),
    ("any", 4, 16): Tiles(32, 32, 4, 2),
    ("any", 4, 32): Tiles(32, 32, 4, 2),
    ("any", 4, 64): Tiles(32, 32, 4, 2),
    ("any", 4, 128): Tiles(32, 16, 4, 1),
    ("any", 4, 256): Tiles(16, 16, 4, 1),
    ("sm_90", 2, 64): Tiles(64, 64, 4, 3),
    ("sm_90", 2, 128): Tiles(128, 64, 8, 3),
    ("sm_90", 2, 256): Tiles(32, 64, 8, 1),
}
