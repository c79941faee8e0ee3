"""How much work a count will be, roughly: meetings of two tiles that the interpreter walks through."""

from __future__ import annotations

from kernels.fa1 import tile_sizes as fa1_tiles
from kernels.fa2 import tile_sizes as fa2_tiles
from kernels.naive import tile_sizes as naive_tiles
from kernels.problem import Problem
from kernels.tile_sizes import Table
from kernels.traffic.formula import passes
from kernels.traffic.ledger import Direction
from kernels.traffic.loops import Sizes, tiles_in

SECONDS_A_MEETING = 0.0025
"""Between 0.0015 and 0.005 on two cores of a server, idle and busy."""

SECONDS_TO_START_A_WORKER = 5.0


def meetings(problem: Problem, implementation: str, direction: Direction, gpu: str) -> int:
    """Of one head of keys, with the queries that share it."""
    sizes = Sizes.of(problem, gpu)
    return sum(COSTS[implementation, part](sizes) for part in passes(direction))


def flash(sizes: Sizes, table: Table, programs: int) -> int:
    """Tiles of queries by tiles of keys; where a program has one tile, and all see alike, few of them."""
    tiles = sizes.tiles(table)
    rows = tiles_in(sizes.queries, tiles.block_q)
    columns = tiles_in(sizes.keys, tiles.block_k)
    if sizes.causal:
        return rows * columns // 2 + rows + columns
    return min(programs, rows) * columns


def group(sizes: Sizes) -> int:
    """Query heads of one head of keys."""
    return sizes.heads // sizes.kv_heads


def fa1(sizes: Sizes, table: Table, heads: int) -> int:
    """One program has all of a head."""
    return heads * flash(sizes, table, programs=sizes.queries)


def fa2_backward(sizes: Sizes) -> int:
    keys = flash(sizes, fa2_tiles.BACKWARD_KEYS, programs=4)
    return group(sizes) * keys + flash(sizes, fa2_tiles.BACKWARD_QUERIES, programs=4)


def naive(sizes: Sizes, products: int) -> int:
    """Products with the N x N matrix; what makes one takes little."""
    tiles = sizes.tiles(naive_tiles.SUMS)
    longest = max(sizes.keys, group(sizes) * sizes.queries)
    return 20 + products * 3 * tiles_in(longest, tiles.block_k)


COSTS = {
    ("naive", "forward"): lambda sizes: naive(sizes, 1),
    ("naive", "backward"): lambda sizes: naive(sizes, 3),
    ("fa1", "forward"): lambda sizes: fa1(sizes, fa1_tiles.FORWARD, min(2, group(sizes))),
    ("fa1", "backward"): lambda sizes: fa1(sizes, fa1_tiles.BACKWARD, group(sizes)),
    ("fa2", "forward"): lambda sizes: flash(sizes, fa2_tiles.FORWARD, programs=4),
    ("fa2", "backward"): fa2_backward,
}
"""(implementation, pass) -> the meetings."""
