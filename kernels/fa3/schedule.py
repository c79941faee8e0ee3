# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Which queries a program of the forward pass takes, turn by turn, and against which keys.

A program stays on its multiprocessor and takes piece after piece: up to CONSUMERS blocks of 64 queries of one
head, against a range of key tiles. Three orders keep all multiprocessors busy to the end:

- SHARES, few short heads: all blocks of all heads in a row, cut into equal shares.
- WAVES, long heads: whole tiles in waves; what is left for the last wave is split along the keys.
- CAUSAL: the longest tiles first, and every second wave backwards.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kernels.hopper import gl, gluon

ROWS = gl.constexpr(64)
"""Queries of one consumer: the rows of one wgmma."""

SHARES = gl.constexpr(0)
WAVES = gl.constexpr(1)
CAUSAL = gl.constexpr(2)

SPLIT_AT_MOST = 0.6
"""Of a wave. Splitting more cost more than it saved."""


class Plan(NamedTuple):
    """The numbers that the kernel works its pieces out of."""

    batch_heads: int
    blocks: int  # of 64 queries, of a head
    whole: int  # WAVES: the tiles that are not split
    share: int  # WAVES: key tiles of a program of those that are
    section: int  # CAUSAL: heads whose keys and values are in L2 together


L2_BYTES = 24 * 2**20
"""Keys and values that may be counted on to stay in L2: half of an H100's."""


@cache
def plan_for(problem, consumers, block_k, programs, order=None, split=True) -> tuple[int, Plan]:
    batch_heads = problem.batch * problem.heads
    blocks = -(-problem.queries // 64)
    tiles = -(-blocks // consumers)
    head_bytes = 4 * problem.keys * problem.head_dim
    if problem.causal:
        section = max(1, min(batch_heads, L2_BYTES // head_bytes))
        return 2, Plan(batch_heads, blocks, 0, 0, section)
    total = batch_heads * tiles
    left = total % programs
    key_tiles = -(-problem.keys // block_k)
    if order is None:
        order = (
            0 if left > SPLIT_AT_MOST * programs and head_bytes * batch_heads < 2 * L2_BYTES else 1
        )
    if order == 0 or not split or not 0 < left <= SPLIT_AT_MOST * programs or key_tiles < 2:
        left = 0
    share = -(-left * key_tiles // programs)
    return order, Plan(batch_heads, blocks, total - left, share, 0)


# --- device --------------------------------------------------------------------------------------------------


@gluon.jit
def turns_of(
    program, plan, keys, CONSUMERS: gl.constexpr, BLOCK_K: gl.constexpr, ORDER: gl.constexpr
):
    """-> how many pieces this program takes, and where it begins in the order."""
    batch_heads, blocks, whole, share = plan[0], plan[1], plan[2], plan[3]
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
    total = batch_heads * tiles
    if ORDER == CAUSAL:
        return gl.cdiv(total - program, programs), program
    turns = gl.cdiv(gl.maximum(whole - program, 0), programs)
    key_tiles = gl.cdiv(keys, BLOCK_K)
    units = (total - whole) * key_tiles
    start = gl.minimum(program * share, units)
    end = gl.minimum(start + share, units)
    inside = gl.minimum(end, (start // gl.maximum(key_tiles, 1) + 1) * key_tiles)
    return turns + gl.where(end > start, 1, 0) + gl.where(end > inside, 1, 0), program


@gluon.jit
def piece_at(
    turn, at, program, plan, queries, keys,
    CONSUMERS: gl.constexpr, BLOCK_K: gl.constexpr, ORDER: gl.constexpr,
):  # fmt: skip
    """One piece of the order: (batch * heads + head, its first block, blocks, first and end key tile, slot).

    -> the piece and where the next one begins. Its partial result goes into `slot`, -1 where it is whole.
    """
    batch_heads, blocks, whole, share, section_heads = plan
    programs = gl.num_programs(0)
    tiles = gl.cdiv(blocks, CONSUMERS)
    key_tiles = gl.cdiv(keys, BLOCK_K)
    if ORDER == SHARES:
        end = (program + 1) * (batch_heads * blocks) // programs
        block = at % blocks
        active = gl.minimum(gl.minimum(CONSUMERS, blocks - block), end - at)
        return (
            at // blocks,
            block,
            active,
            0,
            key_tiles,
            gl.where(at < 0, 0, -1),
        ), at + active
    if ORDER == CAUSAL:
        # Every second wave backwards: who began with the longest tile goes on with the shortest.
        wave = turn * programs
        rank = wave + program
        total = batch_heads * tiles
        if turn % 2 == 1:
            rank = gl.minimum(wave + programs, total) - 1 - program
        section = rank // (section_heads * tiles)
        heads = gl.minimum(section_heads, batch_heads - section * section_heads)
        rank -= section * section_heads * tiles
        block = (tiles - 1 - rank // heads) * CONSUMERS
        active = gl.minimum(CONSUMERS, blocks - block)
        seen = gl.minimum(keys, (block + active) * ROWS + keys - queries)
        end_tile = gl.maximum(1, gl.cdiv(seen, BLOCK_K))
        return (
            section * section_heads + rank % heads,
            block,
            active,
            0,
            end_tile,
            gl.where(rank < 0, 0, -1),
        ), at
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
