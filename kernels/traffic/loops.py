"""The bytes of each launch, from the loops of our kernels: which tiles meet, and what each meeting moves.

Written by hand beside the kernels, and never by running them; `counted` runs them, and a test holds the two
together to the byte. Masked tails move nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.fa1 import tile_sizes as fa1_tiles
from kernels.fa2 import tile_sizes as fa2_tiles
from kernels.naive import tile_sizes as naive_tiles
from kernels.problem import Problem
from kernels.tile_sizes import Table, Tiles, padded, row_for
from kernels.traffic.ledger import KernelTraffic

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


# --- FlashAttention-2 -------------------------------------------------------------------------------


def fa2_forward(sizes: Sizes) -> list[KernelTraffic]:
    """Q once, K and V once for each tile of queries; O and the log-sum-exp once."""
    seen = keys_read(sizes, sizes.tiles(fa2_tiles.FORWARD))
    return [
        KernelTraffic(
            "forward_kernel",
            bytes_read=sizes.heads * (sizes.queries + 2 * seen) * sizes.vector,
            bytes_written=sizes.heads * sizes.queries * (sizes.vector + FLOAT32),
        )
    ]


def fa2_backward(sizes: Sizes) -> list[KernelTraffic]:
    """delta; then dK and dV, Q and dO streaming past; then dQ, K and V streaming past."""
    rows = sizes.heads * sizes.queries
    walked = sizes.heads * queries_read(sizes, sizes.tiles(fa2_tiles.BACKWARD_KEYS), False)
    seen = sizes.heads * keys_read(sizes, sizes.filled_tiles(fa2_tiles.BACKWARD_QUERIES))
    own_keys = 2 * sizes.kv_heads * sizes.keys * sizes.vector
    query_side = 2 * sizes.vector + 2 * FLOAT32  # q and dO; log-sum-exp and delta
    return [
        KernelTraffic("delta_kernel", 2 * rows * sizes.vector, rows * FLOAT32),
        KernelTraffic("keys_kernel", own_keys + walked * query_side, own_keys),
        KernelTraffic(
            "queries_kernel", rows * query_side + 2 * seen * sizes.vector, rows * sizes.vector
        ),
    ]


# --- FlashAttention-1 -------------------------------------------------------------------------------


def fa1_forward(sizes: Sizes) -> list[KernelTraffic]:
    """K and V once a head; Q at every visit; the unfinished O, m and l fetched and kept between visits.

    O grows in float32, and its last visit writes it rounded, with the log-sum-exp instead of m and l.
    """
    visits = queries_read(sizes, sizes.tiles(fa1_tiles.FORWARD), True)
    state = (visits - sizes.queries) * (sizes.width + 2) * FLOAT32
    read = 2 * sizes.keys * sizes.vector + visits * sizes.vector + state
    written = state + sizes.queries * (sizes.vector + FLOAT32)
    return [KernelTraffic("forward_kernel", sizes.heads * read, sizes.heads * written)]


def fa1_backward(sizes: Sizes) -> list[KernelTraffic]:
    """K, V, dK and dV once a head of keys; Q, O, dO and the log-sum-exp at every visit; dQ grows in float32."""
    visits = queries_read(sizes, sizes.tiles(fa1_tiles.BACKWARD), True)
    state = (visits - sizes.queries) * sizes.width * FLOAT32
    own_keys = 2 * sizes.kv_heads * sizes.keys * sizes.vector
    read = visits * (3 * sizes.vector + FLOAT32) + state
    written = state + sizes.queries * sizes.vector
    return [
        KernelTraffic(
            "backward_kernel",
            bytes_read=own_keys + sizes.heads * read,
            bytes_written=own_keys + sizes.heads * written,
        )
    ]


# --- the textbook's kernels -------------------------------------------------------------------------


def naive_forward(sizes: Sizes) -> list[KernelTraffic]:
    """S = Q K^T; P over S; O = P V."""
    return [
        pairs(sizes),
        softmax(sizes),
        sums(sizes, members=1, turned=False),
    ]


def naive_backward(sizes: Sizes) -> list[KernelTraffic]:
    """dV = P^T dO; dP = dO V^T; dS over dP; dQ = dS K; dK = dS^T Q."""
    group = sizes.heads // sizes.kv_heads
    return [
        sums(sizes, members=group, turned=True),
        pairs(sizes),
        softmax_backward(sizes),
        sums(sizes, members=1, turned=False),
        sums(sizes, members=group, turned=True),
    ]


def pairs(sizes: Sizes) -> KernelTraffic:
    """A tile of the matrix needs the vectors of its queries and of its keys, whatever they may see."""
    tiles = sizes.filled_tiles(naive_tiles.PAIRS)
    left = sizes.queries * tiles_in(sizes.stored_keys, tiles.block_k)
    right = sizes.keys * tiles_in(sizes.queries, tiles.block_q)
    return KernelTraffic(
        "pairs_kernel",
        bytes_read=sizes.heads * (left + right) * sizes.vector,
        bytes_written=sizes.heads * sizes.queries * sizes.stored_keys * sizes.bytes,
    )


def softmax(sizes: Sizes) -> KernelTraffic:
    """S once where a row fits on chip, twice where it does not; P over it."""
    rows = sizes.heads * sizes.queries
    matrix = rows * sizes.stored_keys * sizes.bytes
    fits = sizes.stored_keys <= naive_tiles.softmax_tiles(sizes.stored_keys).block_k
    return KernelTraffic(
        "softmax_kernel",
        bytes_read=matrix if fits else 2 * matrix,
        bytes_written=matrix + rows * FLOAT32,
    )


def softmax_backward(sizes: Sizes) -> KernelTraffic:
    """O and dO for delta, P and dP; dS over dP."""
    rows = sizes.heads * sizes.queries
    matrix = rows * sizes.stored_keys * sizes.bytes
    return KernelTraffic("softmax_backward_kernel", 2 * rows * sizes.vector + 2 * matrix, matrix)


def sums(sizes: Sizes, members: int, turned: bool) -> KernelTraffic:
    """Rows of the matrix, or of its transpose (`turned`), weigh vectors; `members` heads add up to one.

    What is stored behind the last key is read where a tile covers it, and each tile of rows reads all vectors.
    """
    tiles = sizes.filled_tiles(naive_tiles.SUMS)
    stored = (sizes.queries, sizes.stored_keys)
    rows, columns = sizes.queries, sizes.keys
    if turned:
        stored, rows, columns = stored[::-1], columns, rows
    out_heads = sizes.heads // members
    weights = min(stored[0], covered(rows, tiles.block_q)) * min(
        stored[1], covered(columns, tiles.block_k)
    )
    vectors = tiles_in(rows, tiles.block_q) * columns
    return KernelTraffic(
        "sums_kernel",
        bytes_read=sizes.heads * (weights * sizes.bytes + vectors * sizes.vector),
        bytes_written=out_heads * rows * sizes.vector,
    )


LOOPS = {
    ("naive", "forward"): naive_forward,
    ("naive", "backward"): naive_backward,
    ("fa1", "forward"): fa1_forward,
    ("fa1", "backward"): fa1_backward,
    ("fa2", "forward"): fa2_forward,
    ("fa2", "backward"): fa2_backward,
}
"""(implementation, pass) -> its launches, in their order."""
