"""Tile sizes of FlashAttention-2.

`python -m kernels.bench tune` on an H200 (commit 270fa54, bfloat16, `results/tune.csv`) finds the rows "sm_90"
for widths 64 and 128 again, with two exceptions. FORWARD at 64: (128, 64, 8, 3) was 2 % faster over its two
problems, but 1.4 times slower at (1, 6, 1370, 64), where half as many programs leave multiprocessors idle.
BACKWARD_KEYS at 128: the row spills two registers, so `tune` leaves it out; with the fastest that does not
spill, (32, 128, 8, 3), the backward pass was 8 % slower.

The forward row for 256 and the rows for odd widths were chosen because they do not spill, and were not timed. Both
backward rows for 256 are the fastest of five and of four that were timed at (1, 16, 8192, 256) on an H200. At odd widths
above 64 the rows for 128 spill on sm_90 (forward 104 bytes, keys 200, queries 64); they pass every test and
are clean under a memory checker. FORWARD with (128, 32, 8, 3) does not spill and was 20 % faster at widths
72, 111 and 120, but 7 % slower at 80 and 96, which would share the row.
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
    ("sm_90", 2, 256): Tiles(64, 32, 8, 2),
    ("sm_90 odd", 2, 256): Tiles(64, 32, 8, 1),
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
    ("sm_90", 2, 256): Tiles(128, 32, 8, 2),
    ("sm_90 odd", 2, 256): Tiles(32, 64, 8, 1),
}
