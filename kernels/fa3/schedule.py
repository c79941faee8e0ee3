# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Which queries a program of the forward pass takes, turn by turn, and against which keys.

A program stays on its multiprocessor and takes piece after piece: up to CONSUMERS blocks of 64 queries of one
head, against a range of key tiles. Three orders keep all multiprocessors busy to the end:

- SHARES, few short heads: all blocks of all heads in a row, cut into equal shares.
- WAVES, long heads: whole tiles in waves; what is left for the last wave is split along the keys.
- CAUSAL: the longest tiles first, and every second wave backwards.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kernels.hopper import gl, gluon
from kernels.problem import Problem

ROWS = gl.constexpr(64)
"""Queries of one consumer: the rows of one wgmma."""

SHARES = gl.constexpr(0)
WAVES = gl.constexpr(1)
CAUSAL = gl.constexpr(2)

SPLIT_AT_MOST = 0.6
"""Of a wave. Splitting more cost more than it saved: on an H200 0.52 of a wave gained, 0.82 lost."""

L2_BYTES = 48 * 2**20
"""Keys and values of all heads that SHARES may keep going at once: an H100 has 50 MB of L2, an H200 60."""

MOST_PARTS = 8
"""Programs that may share a tile."""


class Plan(NamedTuple):
    """The numbers that the kernel works its pieces out of."""

    batch_heads: int
    blocks: int  # of 64 queries, of a head
    whole: int  # WAVES: the tiles that are not split
    share: int  # WAVES: key tiles of a program of those that are; 0 where none is


@lru_cache(maxsize=1024)
def plan_for(
    problem: Problem, consumers: int, block_k: int, programs: int, split: bool = True
) -> tuple[int, Plan]:
    """-> the order of the pieces, and their numbers."""
    batch_heads = problem.batch * problem.heads
    blocks = -(-problem.queries // ROWS.value)
    tiles = batch_heads * -(-blocks // consumers)
    if problem.causal:
        return CAUSAL.value, Plan(batch_heads, blocks, tiles, 0)
    left = tiles % programs
    key_tiles = -(-problem.keys // block_k)
    if left > SPLIT_AT_MOST * programs:
        in_l2 = 4 * problem.keys * problem.head_dim * batch_heads <= L2_BYTES
        return (SHARES if in_l2 else WAVES).value, Plan(batch_heads, blocks, tiles, 0)
    if not split or key_tiles < 2 or consumers == 1:
        left = 0
    share = max(-(-left * key_tiles // programs), -(-key_tiles // (MOST_PARTS - 1)))
    return WAVES.value, Plan(batch_heads, blocks, tiles - left, share if left else 0)


# --- device ------------------------------------------------------------------------------------------------


@gluon.jit
def turns_of(
    program, plan, keys, CONSUMERS: gl.constexpr, BLOCK_K: gl.constexpr, ORDER: gl.constexpr
):
    """-> how many pieces this program takes, and where it begins in the order."""
    batch_heads, blocks, whole, share = plan
    programs = gl.num_programs(0)
    tiles = gl.cdiv(blocks, CONSUMERS)
    if ORDER == SHARES:
        total = batch_heads * blocks
        start = program * total // programs
        end = (program + 1) * total // programs
        first = gl.minimum(end, (start // blocks + 1) * blocks) - start
        rest = end - start - first
        turns = gl.cdiv(first, CONSUMERS) + rest // blocks * tiles
        return turns + gl.cdiv(rest % blocks, CONSUMERS), start
    turns = gl.cdiv(gl.maximum(whole - program, 0), programs)
    if ORDER == WAVES:
        key_tiles = gl.cdiv(keys, BLOCK_K)
        units = (batch_heads * tiles - whole) * key_tiles
        start = gl.minimum(program * share, units)
        end = gl.minimum(start + share, units)
        inside = gl.minimum(end, (start // key_tiles + 1) * key_tiles)
        turns += gl.where(end > start, 1, 0) + gl.where(end > inside, 1, 0)
    return turns, program


@gluon.jit
def piece_at(
    turn, at, program, plan, queries, keys,
    CONSUMERS: gl.constexpr, BLOCK_K: gl.constexpr, ORDER: gl.constexpr,
):  # fmt: skip
    """One piece of the order: (batch * heads + head, its first block, blocks, first and end key tile, slot).

    -> the piece and where the next one begins. Its partial result goes into `slot`, -1 where it is whole.
    """
    batch_heads, blocks, whole, share = plan
    programs = gl.num_programs(0)
    tiles = gl.cdiv(blocks, CONSUMERS)
    key_tiles = gl.cdiv(keys, BLOCK_K)
    if ORDER == SHARES:
        end = (program + 1) * (batch_heads * blocks) // programs
        block = at % blocks
        active = gl.minimum(gl.minimum(CONSUMERS, blocks - block), end - at)
        # Worked out, though it is never 0: a constant here trips the compiler of Triton 3.6.
        slot = gl.where(at < 0, 0, -1)
        return (at // blocks, block, active, 0, key_tiles, slot), at + active
    if ORDER == CAUSAL:
        # Who began with the longest tile goes on with the shortest of the next wave.
        rank = at
        if turn % 2 == 1:
            rank = gl.minimum((turn + 1) * programs, whole) - 1 - program
        block = (tiles - 1 - rank // batch_heads) * CONSUMERS
        active = gl.minimum(CONSUMERS, blocks - block)
        seen = gl.minimum(keys, (block + active) * ROWS + keys - queries)
        end_tile = gl.maximum(1, gl.cdiv(seen, BLOCK_K))
        slot = gl.where(at < 0, 0, -1)
        return (rank % batch_heads, block, active, 0, end_tile, slot), at + programs
    tile, first_tile, end_tile, slot = at, 0, key_tiles, -1
    if at >= whole:
        start = program * share
        end = gl.minimum(start + share, (batch_heads * tiles - whole) * key_tiles)
        part = (at - whole) // programs
        tile = start // key_tiles + part
        first_tile = gl.maximum(start - tile * key_tiles, 0)
        end_tile = gl.minimum(end - tile * key_tiles, key_tiles)
        tile += whole
        slot = 2 * program + part
    block = tile % tiles * CONSUMERS
    active = gl.minimum(CONSUMERS, blocks - block)
    return (tile // tiles, block, active, first_tile, end_tile, slot), at + programs
