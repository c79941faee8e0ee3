"""About how long a count takes: meetings of two tiles that the interpreter walks through, by what one costs.

Two programs of a kind stand for all, and what a helper has done before is remembered, so that a meeting costs
least where many are alike.
"""

from __future__ import annotations

import dataclasses

from kernels.fa1 import tile_sizes as fa1_tiles
from kernels.fa2 import tile_sizes as fa2_tiles
from kernels.naive import tile_sizes as naive_tiles
from kernels.problem import Problem
from kernels.tile_sizes import Table
from kernels.traffic import loops_fa3, loops_fa3_backward
from kernels.traffic.formula import passes
from kernels.traffic.ledger import Direction
from kernels.traffic.sizes import Sizes, tiles_in

SECONDS_A_MEETING = {
    ("naive", "forward"): 0.004,
    ("naive", "backward"): 0.003,
    ("fa1", "forward"): 0.0008,
    ("fa1", "backward"): 0.003,
    ("fa2", "forward"): 0.0006,
    ("fa2", "backward"): 0.0008,
    ("fa3", "forward"): 0.0025,
    ("fa3", "backward"): 0.002,
}
"""(implementation, pass) -> of one core of a server; half as much again as when it has nothing else to do."""

SECONDS_TO_BEGIN = 0.5
"""Triton's import, and the first launch."""

SECONDS_TO_START_A_WORKER = 5.0


def forecast_seconds(
    problem: Problem, implementation: str, direction: Direction, gpu: str
) -> float:
    """Of one head of keys, with the queries that share it, or of all for fa3; without what it takes to begin."""
    one = dataclasses.replace(problem, batch=1, heads=problem.group, kv_heads=1)
    sizes = Sizes.of(problem if implementation == "fa3" else one, gpu)
    return sum(
        MEETINGS[implementation, part](sizes) * SECONDS_A_MEETING[implementation, part]
        for part in passes(direction)
    )


def of_tiles(sizes: Sizes, table: Table) -> int:
    """All tiles of queries by all tiles of keys, of one head; half of them under a causal mask."""
    tiles = sizes.tiles(table)
    rows = tiles_in(sizes.queries, tiles.block_q)
    columns = tiles_in(sizes.keys, tiles.block_k)
    return rows * columns // 2 + rows + columns if sizes.causal else rows * columns


def of_few_rows(sizes: Sizes, table: Table) -> int:
    """The same where a program has one tile: without a causal mask three programs stand for all."""
    tiles = sizes.tiles(table)
    longest = max(sizes.queries, sizes.keys)
    few = 3 * tiles_in(longest, min(tiles.block_q, tiles.block_k))
    return of_tiles(sizes, table) if sizes.causal else min(few, of_tiles(sizes, table))


def of_sums(sizes: Sizes) -> int:
    """One product with the N x N matrix, and twenty more for what makes it."""
    longest = max(sizes.keys, sizes.heads * sizes.queries)
    return 20 + 3 * tiles_in(longest, sizes.tiles(naive_tiles.SUMS).block_k)


def of_pieces(sizes: Sizes) -> int:
    """All heads are run; whole tiles are alike but for those at an end or on a diagonal, parts of tiles are not."""
    pieces = loops_fa3.Pieces.of(sizes)
    alike = pieces.tiles * pieces.key_tiles // 2 if sizes.causal else 3 * pieces.key_tiles
    return alike + pieces.split * pieces.key_tiles + pieces.all_tiles // 4


def of_keys(sizes: Sizes) -> int:
    """Of all heads the same few programs: the first, the last and one other; under a causal mask each of one head.

    Each piece of dQ of a head is rounded besides. What takes fa2's backward pass is about as quick.
    """
    group, tiles = sizes.heads // sizes.kv_heads, loops_fa3_backward.tiles_of(sizes)
    rows, columns = tiles_in(sizes.queries, tiles.block_q), tiles_in(sizes.keys, tiles.block_k)
    met = rows * columns if sizes.causal else 6 * rows
    return group * min(met, 2 * rows * columns) + 2 * rows + sizes.kv_heads * columns // 16


MEETINGS = {
    ("naive", "forward"): of_sums,
    ("naive", "backward"): lambda sizes: 3 * of_sums(sizes),
    ("fa1", "forward"): lambda sizes: min(2, sizes.heads) * of_tiles(sizes, fa1_tiles.FORWARD),
    ("fa1", "backward"): lambda sizes: sizes.heads * of_tiles(sizes, fa1_tiles.BACKWARD),
    ("fa2", "forward"): lambda sizes: of_few_rows(sizes, fa2_tiles.FORWARD),
    ("fa3", "forward"): of_pieces,
    ("fa3", "backward"): of_keys,
    ("fa2", "backward"): lambda sizes: (
        sizes.heads * of_few_rows(sizes, fa2_tiles.BACKWARD_KEYS)
        + of_few_rows(sizes, fa2_tiles.BACKWARD_QUERIES)
    ),
}
"""(implementation, pass) -> meetings of the tiles of one head of keys."""
