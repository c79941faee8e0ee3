"""A problem as the loops of kernels see it: its sizes in bytes and tiles, and which tiles meet."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.naive import tile_sizes as naive_tiles
from kernels.problem import Problem
from kernels.tile_sizes import Table, Tiles, padded, row_for

FLOAT32 = 4
"""Bytes of what is kept in float32 whatever the inputs are: sums, maxima, log-sum-exps, delta."""


@dataclass(frozen=True)
class Sizes:
    """A problem as the loops see it."""

    heads: int  # of queries, all batch items together
    kv_heads: int
    queries: int
    keys: int
    width: int  # head_dim; what pads it to a tile is masked
    bytes: int  # of an element
    causal: bool
    gpu: str  # whose rows of the tile tables
    chosen: Tiles | None = None  # instead of any row

    @classmethod
    def of(cls, problem: Problem, gpu: str, tiles: Tiles | None = None) -> Sizes:
        """Heads of all batch items together."""
        return cls(
            heads=problem.batch * problem.heads,
            kv_heads=problem.batch * (problem.kv_heads or problem.heads),
            queries=problem.queries,
            keys=problem.keys,
            width=problem.head_dim,
            bytes=getattr(torch, problem.dtype).itemsize,
            causal=problem.causal,
            gpu=gpu,
            chosen=tiles,
        )

    @property
    def vector(self) -> int:
        """Bytes of one query, key or value of one head."""
        return self.width * self.bytes

    @property
    def stored_keys(self) -> int:
        """The columns of a stored N x N matrix."""
        return naive_tiles.stored_columns(self.keys)

    def tiles(self, table: Table) -> Tiles:
        """The row that this problem takes."""
        return self.chosen or row_for(table, self.gpu, self.bytes, self.width)

    def filled_tiles(self, table: Table) -> Tiles:
        """The same for launchers that ask with the padded width, and so never take an "odd" row."""
        return self.chosen or row_for(table, self.gpu, self.bytes, padded(self.width))


def tiles_in(length: int, block: int) -> int:
    """Tiles that cover so many rows."""
    return -(-length // block)


def covered(length: int, block: int) -> int:
    """Rows of those tiles, the last one whole."""
    return tiles_in(length, block) * block


# --- which tiles meet -------------------------------------------------------------------------------


def keys_read(sizes: Sizes, tiles: Tiles) -> int:
    """Keys that stream past the queries of one head, all tiles of queries together.

    Under a causal mask a tile of queries stops behind the tile that holds the last key which any of them sees.
    """
    if not sizes.causal:
        return tiles_in(sizes.queries, tiles.block_q) * sizes.keys
    shift = sizes.keys - sizes.queries
    ends = range(
        tiles.block_q + shift, covered(sizes.queries, tiles.block_q) + shift + 1, tiles.block_q
    )
    return sum(min(sizes.keys, covered(max(0, end), tiles.block_k)) for end in ends)


def queries_read(sizes: Sizes, tiles: Tiles, all_see_the_first: bool) -> int:
    """Queries of one head that walk past the keys, all tiles of keys together.

    Under a causal mask a tile of keys begins with the tile of queries that holds the first one which sees any
    of them; in FlashAttention-1 every query meets the first keys all the same.
    """
    if not sizes.causal:
        return tiles_in(sizes.keys, tiles.block_k) * sizes.queries
    shift = sizes.keys - sizes.queries
    walked = 0
    for start in range(0, sizes.keys, tiles.block_k):
        first = max(0, start - shift) // tiles.block_q * tiles.block_q
        walked += sizes.queries - (0 if start == 0 and all_see_the_first else first)
    return walked
