"""Tile sizes of FlashAttention-1.

One stage: asked for two, Triton 3.7 pipelines nothing here. What is known of the rows "any" from compiling
them for sm_80 and sm_90: all fit in 99 KB and none spills, except for 16 bits the backward pass on sm_80
above width 128 and at odd widths above 64, where two such sums do not fit in the registers, and the forward
pass on sm_90 at odd widths above 128, by 8 bytes.

No row that spills may take wgmma. With (32, 64, 4, 1) at widths 40 and 59 the backward pass spilled 608
bytes on sm_90, and ptxas 12.8 read a uniform register of a wgmma's shared-memory address before the
instruction that writes it: an illegal memory access. The rows "odd" are the largest found that do not spill;
under a memory checker they were clean on an H200.
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
