"""Tile sizes of the product w^T P, and over how many programs its queries are spread."""

from __future__ import annotations

from functools import cache

import torch

from kernels.tile_sizes import Table, Tiles

PRODUCT: Table = {
    ("any", 2, 16): Tiles(64, 128, 4, 3),
    ("any", 2, 32): Tiles(64, 128, 4, 3),
    ("any", 2, 64): Tiles(64, 128, 4, 3),
    ("any", 2, 128): Tiles(64, 64, 8, 2),
    ("any", 2, 256): Tiles(32, 64, 8, 2),
    ("any", 4, 16): Tiles(32, 64, 4, 2),
    ("any", 4, 32): Tiles(32, 64, 4, 2),
    ("any", 4, 64): Tiles(32, 64, 4, 2),
    ("any", 4, 128): Tiles(32, 32, 8, 2),
    ("any", 4, 256): Tiles(16, 16, 4, 1),
}

PROGRAMS_PER_MULTIPROCESSOR = 2
FEW_TILES = 8
"""Up to here one program is done sooner than a second kernel that adds the shares up begins."""


def query_splits(device: torch.device, programs: int, query_tiles: int) -> int:
    """Into how many shares the queries go, so that key tiles x heads x shares fill the GPU."""
    if device.type != "cuda" or query_tiles <= FEW_TILES:
        return 1
    wanted = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(device)
    return max(1, min(-(-wanted // programs), query_tiles))


@cache
def multiprocessors(device: torch.device) -> int:
    """132 on an H200."""
    return torch.cuda.get_device_properties(device).multi_processor_count


MOST_SPLITS = 64
OWN_TILES = 12
"""Tiles of queries that could pass while a program of the Hopper kernel begins and ends."""


def even_splits(device: torch.device, programs: int, query_tiles: int) -> int:
    """Shares of the queries that leave the fewest multiprocessors idle at the end."""
    if device.type != "cuda":
        return 1
    at_once = multiprocessors(device)

    def time(splits: int) -> int:
        return -(-programs * splits // at_once) * (-(-query_tiles // splits) + OWN_TILES)

    return min(range(1, min(MOST_SPLITS, query_tiles) + 1), key=time)
