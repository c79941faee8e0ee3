# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportAssignmentType=false, reportOperatorIssue=false, reportPossiblyUnboundVariable=false
"""The backward pass on Hopper in one pass over the keys: dK and dV of a tile of keys, and its share of dQ.

Two groups of four warps hold 64 keys each; one warp brings Q, dO and two facts of each query by TMA; one warp
for each group adds its part of dQ to memory. Shah et al. 2024, section 3 and appendix B; the order of the
additions is ours.
"""

from __future__ import annotations

from kernels.fa3.backward_keys import work_on_keys
from kernels.fa3.backward_order import first_query_tile, key_tile_of, start_of_walk, visit_of
from kernels.fa3.backward_turns import PIECE_ROWS, PIECE_WIDTH, add_in_turn
from kernels.hopper import fence_async_shared, gl, gluon, mbarrier, parity, tma


@gluon.jit
def bring(
    q_desc, grad_output_desc, facts_desc, rings, barriers, batch, first_head, heads, query_tiles, walk,
    STAGES: gl.constexpr,
):  # fmt: skip
    """The warp that loads: Q and dO and the facts of their queries, tile after tile of the walk."""
    q_ring, grad_output_ring, facts_ring = rings[0], rings[1], rings[2]
    full, empty = barriers
    BLOCK_Q: gl.constexpr = q_ring.shape[3]
    for step in range(walk[1]):
        _, member, tile = visit_of(step, walk)
        slot, phase = step % STAGES, parity(step, STAGES) ^ 1
        head = first_head + member
        place = [batch, head, tile * BLOCK_Q, 0]
        facts = ((batch * heads + head) * query_tiles + tile) * 2
        mbarrier.wait(empty.index(slot), phase)
        there = full.index(slot)
        mbarrier.expect(
            there,
            q_desc.block_type.nbytes
            + facts_desc.block_type.nbytes
            + grad_output_desc.block_type.nbytes,
        )
        tma.async_copy_global_to_shared(q_desc, place, there, q_ring.index(slot))
        tma.async_copy_global_to_shared(facts_desc, [facts, 0], there, facts_ring.index(slot))
        tma.async_copy_global_to_shared(
            grad_output_desc, place, there, grad_output_ring.index(slot)
        )


@gluon.jit
def made(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT mbarriers, each of which opens after so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(barriers.index(i), count=ARRIVALS)
    return barriers


@gluon.jit
def made_rings(q_desc, facts_desc, sums_desc, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):
    """Room for STAGES tiles of Q, of dO and of the facts, for two tiles of dS, and for two pieces of dQ."""
    BLOCK_Q: gl.constexpr = q_desc.block_shape[2]
    BLOCK_D: gl.constexpr = q_desc.block_shape[3]
    dtype: gl.constexpr = q_desc.dtype
    q_ring = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_Q, BLOCK_D], q_desc.layout)
    grad_output_ring = gl.allocate_shared_memory(
        dtype, [STAGES, 1, 1, BLOCK_Q, BLOCK_D], q_desc.layout
    )
    facts_ring = gl.allocate_shared_memory(gl.float32, [STAGES, 2, BLOCK_Q], facts_desc.layout)
    exchanged: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_Q], dtype)
    grad_scores_tiles = gl.allocate_shared_memory(dtype, [2, BLOCK_K, BLOCK_Q], exchanged)
    grad_q_pieces = gl.allocate_shared_memory(
        gl.float32, [2, PIECE_ROWS, PIECE_WIDTH], sums_desc.layout
    )
    return q_ring, grad_output_ring, facts_ring, grad_scores_tiles, grad_q_pieces


@gluon.jit
def head_of(base, strides, batch, head):
    """Where a head begins, and how far its rows are apart."""
    start = base + batch.to(gl.int64) * strides[0] + head.to(gl.int64) * strides[1]
    return start, strides[2]


@gluon.jit
def bring_keys(k_desc, v_desc, batch, head, first_key):
    """Start to load this program's K and V. -> both, as `all_keys` takes them, and the mbarrier that opens then"""
    shape: gl.constexpr = [1, 1, 1, k_desc.block_shape[2], k_desc.block_shape[3]]
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, shape, k_desc.layout)
    v_tiles = gl.allocate_shared_memory(v_desc.dtype, shape, v_desc.layout)
    there = made(1, 1).index(0)
    fence_async_shared()
    mbarrier.expect(there, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
    place = [batch, head, first_key, 0]
    tma.async_copy_global_to_shared(k_desc, place, there, k_tiles.index(0))
    tma.async_copy_global_to_shared(v_desc, place, there, v_tiles.index(0))
    return k_tiles, v_tiles, there


@gluon.jit
def walk_of(
    key_tile, part, parts, first_tile, last_tile, group, queries, keys,
    BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """This part of the walk of this key tile over the tiles of queries that see it, as `visit_of` takes it."""
    first_query = key_tile * 0
    if CAUSAL:
        first_query = first_query_tile(key_tile, queries, keys, BLOCK_Q, BLOCK_K)
    per_head = gl.cdiv(queries, BLOCK_Q) - first_query
    before = per_head * group * part // parts
    total = per_head * group * (part + 1) // parts - before
    start = key_tile * 0
    if not CAUSAL:
        start = start_of_walk(key_tile, first_tile, last_tile, total)
    return start, total, first_query, per_head, before


@gluon.jit(
    do_not_specialize=[
        "ticket_ptr", "kv_rows", "heads", "kv_heads", "queries", "keys", "together", "slots", "whole",
        "parts", "scale", "scale_log2e",
    ]
)  # fmt: skip
def pass_kernel(
    q_desc,
    k_desc,
    v_desc,
    grad_output_desc,
    facts_desc,
    sums_desc,
    ticket_ptr,
    turns_ptr,
    grad_k_ptr,
    grad_v_ptr,
    grad_k_strides,
    grad_v_strides,
    parts_ptr,
    kv_rows,
    heads,
    kv_heads,
    queries,
    keys,
    together,
    slots,
    whole,
    parts,
    scale,
    scale_log2e,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    LOOK_AHEAD: gl.constexpr,
    REGISTERS: gl.constexpr,
    FEW_REGISTERS: gl.constexpr,
):
    """One program: one tile of keys of one kv head, against the queries of the heads that share it, or a part."""
    BLOCK_Q: gl.constexpr = q_desc.block_shape[2]
    BLOCK_K: gl.constexpr = k_desc.block_shape[2]
    ticket = gl.atomic_add(ticket_ptr, 1, sem="relaxed")
    key_tiles = gl.cdiv(keys, BLOCK_K)
    kv_row, key_tile, part, count, first_tile, last_tile = key_tile_of(
        ticket, key_tiles, kv_rows, together, slots, whole, parts
    )
    batch, kv_head, group = kv_row // kv_heads, kv_row % kv_heads, heads // kv_heads
    first_head, query_tiles = kv_head * group, gl.cdiv(queries, BLOCK_Q)
    walk = walk_of(
        key_tile, part, count, first_tile, last_tile, group, queries, keys, BLOCK_Q, BLOCK_K, CAUSAL
    )
    k_tiles, v_tiles, kv_full = bring_keys(k_desc, v_desc, batch, kv_head, key_tile * BLOCK_K)

    rings = made_rings(q_desc, facts_desc, sums_desc, BLOCK_K, STAGES)
    full, empty, filled, emptied = made(STAGES, 1), made(STAGES, 2), made(2, 1), made(2, 1)
    fence_async_shared()
    barriers = (full, empty, filled, emptied)
    grad_k_head, grad_k_rows = head_of(grad_k_ptr, grad_k_strides, batch, kv_head)
    grad_v_head, grad_v_rows = head_of(grad_v_ptr, grad_v_strides, batch, kv_head)
    held = 2 * BLOCK_K * q_desc.block_shape[3]  # dK and dV of a tile
    mine = ((kv_row * key_tiles + key_tile - whole) * parts + part).to(gl.int64) * held
    outputs = (grad_k_head, grad_k_rows, grad_v_head, grad_v_rows, parts_ptr + mine, count)
    first_row = batch * heads + first_head
    gl.warp_specialize(
        [
            (work_on_keys, (
                k_tiles, v_tiles, kv_full, rings, barriers, walk, outputs, key_tile * BLOCK_K, queries, keys,
                scale, scale_log2e, 0, HEAD_DIM, STAGES, CAUSAL,
            )),
            (work_on_keys, (
                k_tiles, v_tiles, kv_full, rings, barriers, walk, outputs, key_tile * BLOCK_K, queries, keys,
                scale, scale_log2e, 1, HEAD_DIM, STAGES, CAUSAL,
            )),
            (bring, (
                q_desc, grad_output_desc, facts_desc, rings, (full, empty),
                batch, first_head, heads, query_tiles, walk, STAGES,
            )),
            (add_in_turn, (
                sums_desc, turns_ptr, rings[4].index(0), filled.index(0), emptied.index(0), first_row,
                query_tiles, queries, keys, key_tile, first_tile, last_tile, walk, 0, BLOCK_Q, BLOCK_K, CAUSAL,
                LOOK_AHEAD,
            )),
            (add_in_turn, (
                sums_desc, turns_ptr, rings[4].index(1), filled.index(1), emptied.index(1), first_row,
                query_tiles, queries, keys, key_tile, first_tile, last_tile, walk, 1, BLOCK_Q, BLOCK_K, CAUSAL,
                LOOK_AHEAD,
            )),
        ],
        [4, 1, 1, 1],
        [REGISTERS, FEW_REGISTERS, FEW_REGISTERS, FEW_REGISTERS],
    )  # fmt: skip
