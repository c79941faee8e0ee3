# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
"""w^T P on Hopper, with tensor cores, exponential unit and multiply-add units at work at once.

One warp brings tiles of queries by TMA; three warpgroups hold 128 keys each and add up what each key gets
from every query. Only one of attention's two products is needed here, so the exponentials take longest:
a part of them is worked out on the multiply-add units, as in FlashAttention-4 (Zadouri et al. 2026).
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.hopper import (
    describe,
    gl,
    gluon,
    mbarrier,
    parity,
    score_layout,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from kernels.recompute.exponentials_hopper import operands, receive_text
from kernels.recompute.tile_sizes import even_splits
from kernels.tile_sizes import padded
from kernels.tiles import on_device_of

ROWS = 64
"""Queries of one tile: what one warpgroup's matrix instruction takes."""
KEYS = 128
CONSUMERS = 3
STAGES = 4
POLYNOMIALS = 2
"""Of 16 exponentials, those worked out without the exponential unit: of 0, 2, 4, 5, 6 and 8 the fastest on
an H200, by 1 to 10 % at 21,905 tokens; from 4 on they take longer than they spare."""


@gluon.jit
def halves(scores):
    """[64, keys] as the two rows that each thread holds, [4 warps, 8 lanes, keys] each; nothing moves."""
    apart = scores.reshape([4, 2, 8, scores.shape[1]])
    return apart.permute((0, 2, 3, 1)).split()


@gluon.jit
def receive(
    sums, scores, shift, w, scale,
    ROW: gl.constexpr, POLYNOMIALS: gl.constexpr, WEIGHTED: gl.constexpr,
):  # fmt: skip
    """sums + w * 2^(scale * scores + shift); shift and w [4, 8], one for each row."""
    # The other form of the same exponent, see `receive_text`.
    fixed = (shift + 127.0) * 0.00390625
    small = scale * 0.00390625
    text: gl.constexpr = receive_text(POLYNOMIALS, ROW, WEIGHTED)
    inputs = [scores, sums, shift[:, :, None], fixed[:, :, None], scale, small, w[:, :, None]]
    return gl.inline_asm_elementwise(
        text, operands(), inputs, dtype=gl.float32, is_pure=True, pack=8
    )


@gluon.jit
def produce(
    queues, q_desc, k_desc, place, KEYS: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr
):
    """Bring the keys once, then one tile of queries after the other, each into the slot that is free."""
    q_slots, k_slots, filled, emptied, keys_here = queues
    batch, head, kv_head, key_start, first_tile, tiles = place
    ROWS: gl.constexpr = q_slots.shape[3]
    for consumer in gl.static_range(CONSUMERS):
        here = keys_here.index(consumer)
        mbarrier.expect(here, k_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            k_desc, [batch, kv_head, key_start + consumer * KEYS, 0], here, k_slots.index(consumer)
        )
    for i in range(tiles):
        slot = i % STAGES
        full = filled.index(slot)
        mbarrier.wait(emptied.index(slot), parity(i, STAGES) ^ 1)
        mbarrier.expect(full, q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [batch, head, (first_tile + i) * ROWS, 0], full, q_slots.index(slot)
        )


@gluon.jit
def consume(
    consumer, queues, vectors, place, scale,
    STAGES: gl.constexpr, POLYNOMIALS: gl.constexpr, WEIGHTED: gl.constexpr,
):  # fmt: skip
    """Add up what this warpgroup's keys get from every tile of queries, and write it."""
    q_slots, k_slots, filled, emptied, keys_here = queues
    shift_head, w_head, w_stride, out_head = vectors
    key_start, keys, query, queries, tiles = place
    ROWS: gl.constexpr = q_slots.shape[3]
    KEYS: gl.constexpr = k_slots.shape[3]
    WIDTH: gl.constexpr = k_slots.shape[4]
    k = k_slots.index(consumer).reshape([KEYS, WIDTH]).permute((1, 0))
    empty = gl.zeros([ROWS, KEYS], gl.float32, score_layout(KEYS))
    sums, _ = halves(empty)
    per_row: gl.constexpr = gl.SliceLayout(2, sums.type.layout)  # pyright: ignore
    warp = gl.arange(0, 4, gl.SliceLayout(1, per_row))
    lane = gl.arange(0, 8, gl.SliceLayout(0, per_row))
    query += warp[:, None] * 16 + lane[None, :]
    shift_0, shift_1 = gl.load(shift_head + query), gl.load(shift_head + query + 8)
    w_0, w_1 = shift_0, shift_1  # for the shape, where there are no weights
    mbarrier.wait(keys_here.index(consumer), 0)
    for i in range(tiles):
        slot = i % STAGES
        mbarrier.wait(filled.index(slot), parity(i, STAGES))
        q = q_slots.index(slot).reshape([ROWS, WIDTH])
        scores = warpgroup_mma(q, k, empty, use_acc=False, is_async=True)
        if WEIGHTED:
            place_0 = query.to(gl.int64) * w_stride
            w_0 = gl.load(w_head + place_0, mask=query < queries, other=0.0).to(gl.float32)
            w_1 = gl.load(w_head + place_0 + 8 * w_stride, mask=query + 8 < queries, other=0.0)
            w_1 = w_1.to(gl.float32)
        # The next tile's are fetched while this one is worked on; `shift` has a tile more than is used.
        query += ROWS
        next_0, next_1 = gl.load(shift_head + query), gl.load(shift_head + query + 8)
        scores = warpgroup_mma_wait(0, [scores])
        mbarrier.arrive(emptied.index(slot))
        scores_0, scores_1 = halves(scores)
        sums = receive(sums, scores_0, shift_0, w_0, scale, 0, POLYNOMIALS, WEIGHTED)
        sums = receive(sums, scores_1, shift_1, w_1, scale, 1, POLYNOMIALS, WEIGHTED)
        shift_0, shift_1 = next_0, next_1
    received = gl.sum(gl.sum(sums, 1), 0)
    key = key_start + consumer * KEYS + gl.arange(0, KEYS, received.type.layout)
    gl.store(out_head + key, received, mask=key < keys)


@gluon.jit(
    do_not_specialize=["batches", "heads", "group", "queries", "keys", "share", "tiles", "scale"]
)
def product_hopper_kernel(
    q_desc, k_desc, shift_ptr, w_ptr, partial_ptr, w_strides,
    batches, heads, group, queries, keys, share, tiles, scale,
    CONSUMERS: gl.constexpr, STAGES: gl.constexpr, POLYNOMIALS: gl.constexpr, WEIGHTED: gl.constexpr,
):  # fmt: skip
    """One program: CONSUMERS x 128 keys of one head against one share of the tiles of queries.

    `shift` float32 [batch, heads, (tiles + 1) * 64]: -lse * log2(e), and -inf behind the last query.
    Writes partial [shares, batch, heads, keys]; `share` counts tiles.
    """
    ROWS: gl.constexpr = q_desc.block_type.shape[2]
    KEYS: gl.constexpr = k_desc.block_type.shape[2]
    WIDTH: gl.constexpr = k_desc.block_type.shape[3]
    key_tiles = gl.cdiv(keys, CONSUMERS * KEYS)
    key_start = (gl.program_id(0) % key_tiles) * (CONSUMERS * KEYS)
    row = gl.program_id(0) // key_tiles
    head, batch = row % heads, row // heads % batches
    first_tile = row // heads // batches * share
    count = gl.minimum(share, tiles - first_tile)

    q_slots = gl.allocate_shared_memory(q_desc.dtype, [STAGES, 1, 1, ROWS, WIDTH], q_desc.layout)
    k_slots = gl.allocate_shared_memory(k_desc.dtype, [CONSUMERS, 1, 1, KEYS, WIDTH], k_desc.layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    keys_here = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(filled.index(slot), count=1)
        mbarrier.init(emptied.index(slot), count=CONSUMERS)
    for consumer in gl.static_range(CONSUMERS):
        mbarrier.init(keys_here.index(consumer), count=1)

    queues = (q_slots, k_slots, filled, emptied, keys_here)
    shift_head = shift_ptr + (batch * heads + head).to(gl.int64) * (tiles + 1) * ROWS
    w_head, w_stride = w_ptr, 0
    if WEIGHTED:
        w_head += batch.to(gl.int64) * w_strides[0] + head.to(gl.int64) * w_strides[1]
        w_stride = w_strides[2]
    vectors = (shift_head, w_head, w_stride, partial_ptr + row.to(gl.int64) * keys)
    here = (key_start, keys, first_tile * ROWS, queries, count)
    there = (batch, head, head // group, key_start, first_tile, count)
    gl.warp_specialize(
        [
            (consume, (0, queues, vectors, here, scale, STAGES, POLYNOMIALS, WEIGHTED)),
            (consume, (1, queues, vectors, here, scale, STAGES, POLYNOMIALS, WEIGHTED)),
            (consume, (2, queues, vectors, here, scale, STAGES, POLYNOMIALS, WEIGHTED)),
            (produce, (queues, q_desc, k_desc, there, KEYS, CONSUMERS, STAGES)),
        ],
        [4, 4, 1],
        [160, 160, 24],
    )


@triton.jit
def shift_kernel(shift_ptr, lse_ptr, lse_strides, heads, queries, width, BLOCK: tl.constexpr):
    """-lse * log2(e) of one head, padded to `width` queries by -inf; also where a query sees nothing."""
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    query = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    lse_head = lse_ptr + row // heads * lse_strides[0] + row % heads * lse_strides[1]
    place = query.to(tl.int64) * lse_strides[2]
    lse = tl.load(lse_head + place, mask=query < queries, other=float("inf"))
    shift = tl.where(lse == float("-inf"), float("-inf"), lse * -1.4426950408889634)
    tl.store(shift_ptr + row * width + query, shift, mask=query < width)


def product(
    w: Tensor | None, q: Tensor, k: Tensor, lse: Tensor, scale: float, splits: int | None = None
) -> Tensor:
    """sum_i w_i exp(scale * q_i . k_j - lse_i) for all j, [batch, heads, keys]; w None means ones.

    For what `hopper.takes` takes. `splits`: shares of the queries; None fills the GPU. The same
    splits give the same bits.
    """
    batch, heads, queries, head_dim = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    tiles = triton.cdiv(queries, ROWS)
    programs = triton.cdiv(keys, CONSUMERS * KEYS) * batch * heads
    share = triton.cdiv(tiles, splits or even_splits(q.device, programs, tiles))
    shares = triton.cdiv(tiles, share)  # none of them is empty
    width = (tiles + 1) * ROWS
    shift = q.new_empty(batch, heads, width, dtype=torch.float32)
    partial = q.new_empty(shares, batch, heads, keys, dtype=torch.float32)
    with on_device_of(q):
        shift_kernel[(triton.cdiv(width, 1024) * batch * heads,)](
            shift, lse, lse.stride(), heads, queries, width, BLOCK=1024
        )
        product_hopper_kernel[(programs * shares,)](
            describe(q, ROWS, max(64, padded(head_dim))),
            describe(k, KEYS, max(64, padded(head_dim))),
            shift,
            shift if w is None else w,
            partial,
            None if w is None else w.stride(),
            batch,
            heads,
            group,
            queries,
            keys,
            share,
            tiles,
            scale * math.log2(math.e),
            CONSUMERS=CONSUMERS,
            STAGES=STAGES,
            POLYNOMIALS=POLYNOMIALS,
            WEIGHTED=w is not None,
            num_warps=4,
            maxnreg=128,
        )
    return partial[0] if shares == 1 else partial.sum(0)
