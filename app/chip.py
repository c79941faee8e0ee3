"""What lies on the chip while one program works on its tiles, and what one program may have there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from app.state_tiles import SIDES
from kernels.tile_sizes import padded
from kernels.trace import sram_bytes
from kernels.traffic.roofs import H200_ON_CHIP, on_chip

RESERVED_BYTES = 1024
"""Of each multiprocessor's shared memory; a program cannot have them (CUDA, compute capability 8.0 and later)."""
FLOAT32 = 4


@dataclass(frozen=True)
class Limit:
    """What one program may have; `here` is False for the recorded GPU, where this machine has none."""

    bytes: int
    l2_bytes: int
    here: bool


def limit_of(device: torch.device) -> Limit:
    found = on_chip(device)
    sizes = H200_ON_CHIP if found is None else found
    return Limit(sizes.sram_bytes_per_sm - RESERVED_BYTES, sizes.l2_bytes, found is not None)


@cache
def needs(algorithm: str, head_dim: int, dtype: str = "float32") -> dict[tuple[int, int], int]:
    """Each tile size -> the bytes that one program then holds on the chip, by formula."""
    return {
        (queries, keys): sram_bytes(algorithm, queries, keys, head_dim, dtype)
        for queries in SIDES
        for keys in SIDES
    }


def fitting(tile: tuple[int, int], need: dict[tuple[int, int], int], limit: int) -> tuple[int, int]:
    """This tile size if it fits, else the largest square one that does, or the smallest of all."""
    if need[tile] <= limit:
        return tile
    squares = [(side, side) for side in SIDES if need[side, side] <= limit]
    return squares[-1] if squares else (SIDES[0], SIDES[0])


def parts(algorithm: str, tile: tuple[int, int], head_dim: int, dtype: str) -> dict[str, int]:
    """What lies on the chip, by the player's names, and its bytes; together `kernels.trace.sram_bytes`."""
    (queries, keys), width = tile, padded(head_dim)
    element = getattr(torch, dtype).itemsize
    query, key = queries * width * element, keys * width * element
    square, state, sums = queries * keys * FLOAT32, 2 * queries * FLOAT32, queries * width * FLOAT32
    if algorithm == "fa2-backward":
        inputs = {"q": query, "do": query, "k": key, "v": key}
        return inputs | {"s": square, "ds": square, "lse": state, "dq": sums}
    if algorithm != "naive":
        return {"q": query, "k": key, "v": key, "s": square, "ml": state, "o": sums}
    mixing = {"p": queries * keys * element, "v": key, "o": sums}
    rest = sram_bytes(algorithm, queries, keys, head_dim, dtype) - square
    if sum(mixing.values()) == rest + square:
        return mixing
    of_queries = rest * queries // (queries + keys)
    return {"q": of_queries, "k": rest - of_queries, "s": square}
