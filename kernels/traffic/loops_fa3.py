"""The bytes of fa3's launches, by hand: the pieces that its programs take, and what crosses from L2 for each.

TMA fills with zeros what lies behind the last token, and reads none of it. `counted` runs the twin through the
order of `kernels.fa3.schedule`; a test holds the two together to the byte, and the constants here to the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.fa3 import short
from kernels.problem import Problem
from kernels.traffic.ledger import KernelTraffic
from kernels.traffic.sizes import FLOAT32, Sizes, keys_read, tiles_in

PROGRAMS = 132
"""One for each multiprocessor of an H100 SXM or an H200."""

ROWS = 64
"""Queries of a block: what one group of warps has."""

BLOCKS_AND_KEYS = {64: (3, 128), 128: (2, 128), 256: (2, 32)}
"""Padded head_dim -> blocks of queries of a tile, and keys of a tile."""

MOST_KEYS_OF_FEW = 1536
"""Up to here blocks that find a multiprocessor each are not split."""

FEW_ROWS = 64
"""Queries of a program where all keys of few heads are taken in one piece."""

SPLIT_AT_MOST = 0.6
"""Of a wave that is left over."""

L2_BYTES = 48 * 2**20
"""Keys and values of all heads, at most: the queries are cut into equal shares instead."""

MOST_PARTS = 8
"""Of a tile that is split."""


@dataclass(frozen=True)
class Pieces:
    """How the kernel cuts a problem up."""

    sizes: Sizes
    consumers: int  # blocks of a tile
    block_k: int
    width: int  # head_dim padded to a tile

    @classmethod
    def of(cls, sizes: Sizes) -> Pieces:
        width = next(width for width in BLOCKS_AND_KEYS if sizes.width <= width)
        blocks, block_k = BLOCKS_AND_KEYS[width]
        few = sizes.heads * tiles_in(sizes.queries, ROWS) <= PROGRAMS
        if width == 64 and few and not sizes.causal and sizes.keys <= MOST_KEYS_OF_FEW:
            blocks = 1  # each on a multiprocessor of its own
        return cls(sizes, blocks, block_k, width)

    @property
    def rows(self) -> int:
        """Queries of a whole tile."""
        return self.consumers * ROWS

    @property
    def blocks(self) -> int:
        """Of a head."""
        return tiles_in(self.sizes.queries, ROWS)

    @property
    def tiles(self) -> int:
        """Tiles of queries of a head."""
        return tiles_in(self.blocks, self.consumers)

    @property
    def key_tiles(self) -> int:
        return tiles_in(self.sizes.keys, self.block_k)

    @property
    def all_tiles(self) -> int:
        return self.sizes.heads * self.tiles

    @property
    def in_shares(self) -> bool:
        """Too much is left of the last wave to split it, and all keys stay in L2."""
        left = self.all_tiles % PROGRAMS
        stay = 4 * self.sizes.keys * self.sizes.width * self.sizes.heads <= L2_BYTES
        return left > SPLIT_AT_MOST * PROGRAMS and stay

    @property
    def split(self) -> int:
        """Tiles of queries that are split along the keys: those of the last wave, if they are few."""
        left = self.all_tiles % PROGRAMS
        cut = 0 < left <= SPLIT_AT_MOST * PROGRAMS and self.key_tiles > 1 < self.consumers
        return left if cut and not self.sizes.causal else 0

    @property
    def share(self) -> int:
        """Tiles of keys of each program, of those that are split."""
        equal = tiles_in(self.split * self.key_tiles, PROGRAMS)
        return max(equal, tiles_in(self.key_tiles, MOST_PARTS - 1))

    def rows_of(self, tile: int) -> tuple[int, int]:
        """Queries of a tile, and those of its blocks, the last one whole."""
        block = tile % self.tiles * self.consumers
        active = min(self.consumers, self.blocks - block)
        return min(active * ROWS, self.sizes.queries - block * ROWS), active * ROWS

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """(tile, first key, end) of each part of the tiles that are split: equal shares, cut where a tile ends."""
        units, share = self.split * self.key_tiles, self.share
        for at in sorted({*range(0, units, share), *range(0, units, self.key_tiles)}):
            tile, first = divmod(at, self.key_tiles)
            last = min(self.key_tiles, first + share - at % share)
            keys = min(self.sizes.keys, last * self.block_k)
            yield self.all_tiles - self.split + tile, first * self.block_k, keys


def workspace_bytes(sizes: Sizes) -> int:
    """What the forward pass needs besides its result: room for the parts of split tiles, two for each program."""
    problem = Problem(1, sizes.heads, sizes.queries, sizes.keys, sizes.width, "float16")
    pieces = Pieces.of(sizes)
    if not pieces.split or short.takes(problem):
        return 0
    return 2 * PROGRAMS * pieces.rows * (pieces.width + 1) * FLOAT32


def forward(sizes: Sizes) -> list[KernelTraffic]:
    """Q once, K and V once for each piece; what was split goes through memory in float32."""
    if sizes.chosen:  # a walk, or a count with tiles of one's own: nothing is cut up further
        return [once(sizes, keys_read(sizes, sizes.chosen))]
    problem = Problem(1, sizes.heads, sizes.queries, sizes.keys, sizes.width, "float16")
    if short.takes(problem):
        return [in_one_piece(sizes)]
    pieces = Pieces.of(sizes)
    if sizes.causal:
        return [once(sizes, keys_seen(pieces))]
    if pieces.in_shares:
        return [shares_forward(pieces)]
    return split_forward(pieces)


def in_one_piece(sizes: Sizes) -> KernelTraffic:
    """Few keys: all of them once for each tile of queries, or, of many heads, for each part of a head."""
    blocks = tiles_in(sizes.queries, ROWS)
    times = short.parts_of(sizes.heads, blocks, PROGRAMS)
    name = "stream_kernel"
    if sizes.heads * blocks <= short.FEW:
        name, times = "short_kernel", tiles_in(sizes.queries, FEW_ROWS)
    return once(sizes, times * sizes.keys, name=name)


def once(sizes: Sizes, keys: int, name: str = "forward_kernel") -> KernelTraffic:
    """Q, O and the log-sum-exp once, and so many keys of each head with their values."""
    rows = sizes.heads * sizes.queries
    return KernelTraffic(
        name,
        bytes_read=(rows + 2 * sizes.heads * keys) * sizes.vector,
        bytes_written=rows * (sizes.vector + FLOAT32),
    )


def keys_seen(pieces: Pieces) -> int:
    """Causal: keys that stream past the queries of one head; one tile at least, though none is seen."""
    sizes, seen = pieces.sizes, 0
    for block in range(0, pieces.blocks, pieces.consumers):
        active = min(pieces.consumers, pieces.blocks - block)
        end = min(sizes.keys, (block + active) * ROWS + sizes.keys - sizes.queries)
        seen += min(sizes.keys, max(1, tiles_in(end, pieces.block_k)) * pieces.block_k)
    return seen


def shares_forward(pieces: Pieces) -> KernelTraffic:
    """All blocks of all heads in a row, cut into equal shares, and each share where a head or a tile ends."""
    sizes, rows = pieces.sizes, pieces.sizes.heads * pieces.sizes.queries
    total, turns = sizes.heads * pieces.blocks, 0
    for program in range(PROGRAMS):
        at, end = program * total // PROGRAMS, (program + 1) * total // PROGRAMS
        while at < end:
            head_ends = (at // pieces.blocks + 1) * pieces.blocks
            at += min(pieces.consumers, head_ends - at, end - at)
            turns += 1
    return KernelTraffic(
        "forward_kernel",
        bytes_read=(rows + 2 * turns * sizes.keys) * sizes.vector,
        bytes_written=rows * (sizes.vector + FLOAT32),
    )


def split_forward(pieces: Pieces) -> list[KernelTraffic]:
    """Whole tiles in full waves; then equal shares of the keys of those that are left, and their merge."""
    sizes = pieces.sizes
    whole = pieces.all_tiles - pieces.split
    heads, tiles = divmod(whole, pieces.tiles)
    rows = heads * sizes.queries + min(sizes.queries, tiles * pieces.rows)
    read = (rows + 2 * whole * sizes.keys) * sizes.vector
    written = rows * (sizes.vector + FLOAT32)
    if not pieces.split:
        return [KernelTraffic("forward_kernel", read, written)]
    output, lse = pieces.width * FLOAT32, FLOAT32  # of one query; the output padded
    merged = 0
    for tile, first, end in pieces.parts():
        inside, covered = pieces.rows_of(tile)
        read += (inside + 2 * (end - first)) * sizes.vector
        written += covered * (output + lse)
        merged += pieces.rows * (output + 2 * lse)  # rows behind the last query too, for nobody
    rest = sizes.heads * sizes.queries - rows
    return [
        KernelTraffic("forward_kernel", read, written),
        KernelTraffic("merge_kernel", merged, rest * (sizes.vector + FLOAT32)),
    ]
