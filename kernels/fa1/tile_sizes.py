"""Tile sizes of FlashAttention-1.

One stage: asked for two, Triton 3.7 pipelines nothing here. What is known of the rows "any" from compiling
them for sm_80 and sm_90: all fit in 99 KB and none spills, except the backward pass for 16 bits on sm_80
above width 128 and at odd widths above 64, where two such sums do not fit in the registers.
"""

from __future__ import annotations

from kernels.tile_sizes import Table, Tiles

FORWARD: Table = {
    ("any", 2, 16): Tiles(64, 128, 4, 1),
    ("any", 2, 32): Tiles(64, 64, 4, 1),
    ("any", 2, 64): Tiles(128, 128, 8, 1),
    ("any odd", 2, 64): Tiles(64, 64, 8, 1),
    ("any", 2, 128): Tiles(64, 64, 8, 1),
    ("any odd", 2, 128): Tiles(32, 64, 8, 1),
    ("any", 2, 256): Tiles(32, 32, 8, 1),
    ("any", 4, 16): Tiles(32, 64, 4, 1),
    ("any", 4, 32): Tiles(32, 64, 4, 1),
    ("any", 4, 64): Tiles(32, 32, 4, 1),
    ("any", 4, 128): Tiles(32, 32, 8, 1),
    ("any", 4, 256): Tiles(16, 16, 8, 1),
}

BACKWARD: Table = {
    ("any", 2, 16): Tiles(64, 64, 4, 1),
    ("any", 2, 32): Tiles(64, 64, 4, 1),
    ("any odd", 2, 32): Tiles(32, 64, 8, 1),
    ("any", 2, 64): Tiles(32, 64, 4, 1),
    ("any odd", 2, 64): Tiles(16, 64, 8, 1),
    ("any", 2, 128): Tiles(16, 64, 8, 1),
    ("any", 2, 256): Tiles(16, 16, 8, 1),
    ("sm_90 odd", 2, 128): Tiles(16, 32, 8, 1),
    ("any", 4, 16): Tiles(32, 32, 4, 1),
    ("any", 4, 32): Tiles(32, 32, 4, 1),
    ("any", 4, 64): Tiles(32, 32, 8, 1),
    ("any", 4, 128): Tiles(16, 16, 8, 1),
    ("any", 4, 256): Tiles(16, 16, 8, 1),
}
