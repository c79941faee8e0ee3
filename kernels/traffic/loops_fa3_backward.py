"""The bytes of fa3's backward launches, by hand: one pass along the queries for each tile of keys.

Each pair of tiles that meet adds a share of dQ, in float32, to memory. TMA sends it and L2 adds it up: it is
written, and but for the first share of a place, which only writes, what lies there is read. A turn is counted as
looked at once and raised once; who waits looks more often. Walks of the last wave may be cut into parts, which
leave dK and dV in float32 for one more launch. `counted` runs the twin; a test holds the two together to
the byte, and the constants here to the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernels.fa3.backward_cut import ceil_div, cut_of
from kernels.tile_sizes import Tiles
from kernels.traffic.ledger import KernelTraffic
from kernels.traffic.sizes import FLOAT32, Sizes, queries_read, tiles_in

NARROW_HEAD_DIM, WIDE_HEAD_DIM, FEW_KEYS = 32, 128, 256
"""Wider than the first, at most the second, and more keys than the third: others take fa2's backward pass."""

BLOCK_K = 128
BLOCK_Q = {64: 128, 128: 64}
"""Padded head_dim -> queries of a tile; keys are 128."""

PIECE = 64 * 64
"""Numbers of dQ that one group of warps adds at once; a tile has two."""

PROGRAMS = 132
"""The tickets of a wave: one for each multiprocessor of an H100 SXM or an H200."""

INT32 = 4
"""Bytes of a turn or a ticket."""

Backward = Callable[[Sizes], list[KernelTraffic]]


def in_one_pass(sizes: Sizes) -> bool:
    """Whether fa3 has a pass of its own for it."""
    return NARROW_HEAD_DIM < sizes.width <= WIDE_HEAD_DIM and sizes.keys > FEW_KEYS


def tiles_of(sizes: Sizes) -> Tiles:
    """The tile of queries and of keys that meet."""
    return Tiles(BLOCK_Q[padded(sizes)], BLOCK_K, warps=8, stages=2)


def padded(sizes: Sizes) -> int:
    """The width of a head in a tile."""
    return next((width for width in BLOCK_Q if sizes.width <= width), WIDE_HEAD_DIM)


def pieces_of(sizes: Sizes) -> int:
    """Pieces of dQ, those of the last tile whole."""
    return 2 * sizes.heads * tiles_in(sizes.queries, tiles_of(sizes).block_q)


def workspace_bytes(sizes: Sizes) -> int:
    """Beside the gradients: dQ in float32, two numbers for each query, turns and the ticket; parts of dK and dV."""
    pieces = pieces_of(sizes)
    facts = pieces * tiles_of(sizes).block_q * FLOAT32
    return pieces * (PIECE * FLOAT32 + INT32) + facts + INT32 + bytes_of_parts(sizes)


def backward(sizes: Sizes, otherwise: Backward) -> list[KernelTraffic]:
    """Two facts of each query; the pass; dK and dV of walks that are cut; dQ. `otherwise`: fa2's backward pass."""
    if not in_one_pass(sizes):
        return otherwise(replace(sizes, gpu="sm_90"))
    summed = [sum_of_parts(sizes)] if keys_of_cut(sizes) else []
    return [prepare(sizes), one_pass(sizes), *summed, finish(sizes)]


def cut(sizes: Sizes) -> tuple[int, int]:
    """-> how many tiles of keys are walked whole, and into how many parts the walks of the others are cut."""
    tiles = sizes.kv_heads * tiles_in(sizes.keys, BLOCK_K)
    if sizes.causal:
        return tiles, 1
    visits = tiles_in(sizes.queries, tiles_of(sizes).block_q) * (sizes.heads // sizes.kv_heads)
    return cut_of(tiles, visits, PROGRAMS)


def keys_of_cut(sizes: Sizes) -> int:
    """How many keys the tiles have whose walks are cut."""
    a_head = ceil_div(sizes.keys, BLOCK_K)
    heads, tiles = divmod(cut(sizes)[0], a_head)
    return (sizes.kv_heads - heads) * sizes.keys - tiles * BLOCK_K


def bytes_of_parts(sizes: Sizes) -> int:
    """dK and dV in float32 of each part of a walk, tiles filled up."""
    whole, parts = cut(sizes)
    tiles = sizes.kv_heads * tiles_in(sizes.keys, BLOCK_K) - whole
    return tiles * parts * 2 * BLOCK_K * padded(sizes) * FLOAT32


def sum_of_parts(sizes: Sizes) -> KernelTraffic:
    """The parts; dK and dV of the tiles whose walks are cut."""
    return KernelTraffic(
        "parts_kernel",
        bytes_read=bytes_of_parts(sizes),
        bytes_written=2 * keys_of_cut(sizes) * sizes.vector,
    )


def prepare(sizes: Sizes) -> KernelTraffic:
    """O, dO and the log-sum-exp; facts of whole tiles, and turns and the ticket set to 0."""
    rows, pieces = sizes.heads * sizes.queries, pieces_of(sizes)
    return KernelTraffic(
        "prepare_kernel",
        bytes_read=rows * (2 * sizes.vector + FLOAT32),
        bytes_written=pieces * (tiles_of(sizes).block_q * FLOAT32 + INT32) + INT32,
    )


def one_pass(sizes: Sizes) -> KernelTraffic:
    """K and V once a program; at each meeting Q, dO and the facts, and two pieces of dQ; dK and dV once a program."""
    whole, parts = cut(sizes)
    tiles = sizes.kv_heads * tiles_in(sizes.keys, BLOCK_K)
    tickets = whole + (tiles - whole) * parts
    keys_cut = keys_of_cut(sizes)
    keys_whole = sizes.kv_heads * sizes.keys - keys_cut
    walked = sizes.heads * queries_read(sizes, tiles_of(sizes), False)
    met = sizes.heads * meetings(sizes)
    facts = met * 2 * tiles_of(sizes).block_q * FLOAT32
    taken_up, added = shares_of_dq(sizes)
    counters = (2 * met + tickets) * INT32
    vectors = keys_whole + keys_cut * parts + walked
    return KernelTraffic(
        "pass_kernel",
        bytes_read=2 * vectors * sizes.vector + facts + taken_up + counters,
        bytes_written=2 * keys_whole * sizes.vector + bytes_of_parts(sizes) + added + counters,
    )


def shares_of_dq(sizes: Sizes) -> tuple[int, int]:
    """Bytes of dQ in float32 that the pass reads and writes to add up: each share but the first of a place, and each.

    The reading is L2's own: nothing of it comes to a multiprocessor.
    """
    written = 2 * sizes.heads * meetings(sizes) * PIECE * FLOAT32
    return written - pieces_added(sizes) * PIECE * FLOAT32, written


def finish(sizes: Sizes) -> KernelTraffic:
    """The sums to which anyone has added, and how many have; dQ."""
    return KernelTraffic(
        "finish_kernel",
        bytes_read=pieces_added(sizes) * PIECE * FLOAT32 + pieces_of(sizes) * INT32,
        bytes_written=sizes.heads * sizes.queries * sizes.vector,
    )


def meetings(sizes: Sizes) -> int:
    """Pairs of tiles of one head of which any query sees any key."""
    block_q = tiles_of(sizes).block_q
    tiles, starts = tiles_in(sizes.queries, block_q), range(0, sizes.keys, BLOCK_K)
    if not sizes.causal:
        return len(starts) * tiles
    shift = sizes.keys - sizes.queries
    return sum(tiles - max(0, start - shift) // block_q for start in starts)


def pieces_added(sizes: Sizes) -> int:
    """Pieces that see a key; under a causal mask the first queries may see none."""
    unseen = max(0, sizes.queries - sizes.keys) if sizes.causal else 0
    return pieces_of(sizes) - 2 * sizes.heads * (unseen // tiles_of(sizes).block_q)
