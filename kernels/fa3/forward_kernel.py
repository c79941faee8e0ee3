# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportAssignmentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""FlashAttention-3, forward, in Gluon for Hopper. Shah et al. 2024, Algorithms 1 and 2.

A program is one producer warp, which brings tiles by TMA, and CONSUMERS warpgroups of 64 queries, which share
the tiles of keys and values. The tile that may reach past the last key, or past what a causal mask shows,
comes first, so the loop over the others has no mask.
"""

from __future__ import annotations

from kernels.fa3.forward_softmax import like_rows_of
from kernels.fa3.forward_steps import KEYS_FREE, STAGES, VALUES_FREE, attend, pass_by
from kernels.fa3.schedule import ROWS, piece_at, turns_of
from kernels.hopper import (
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    parity,
    score_layout,
    tma,
    wait_at,
)


@gluon.jit
def bring(descriptor, tiles, full, FREE: gl.constexpr, index, place, FORM: gl.constexpr):
    """Copy the tile at `place` [batch, head, token, 0] into its ring, once all consumers have left its room."""
    stage = index % STAGES
    if index >= STAGES:
        wait_at(FREE + stage, 128 * FORM.CONSUMERS + 32)
    mbarrier.expect(full.index(stage), FORM.BLOCK_K * FORM.BLOCK_D * 2)
    tma.async_copy_global_to_shared(descriptor, place, full.index(stage), tiles.index(stage))


@gluon.jit
def producer(descriptors, queries_room, rings, plan, sizes, FORM: gl.constexpr):
    """Bring the queries of each piece, then its key and value tiles from the last to the first."""
    q_desc, k_desc, v_desc = descriptors[0], descriptors[1], descriptors[2]
    q_tiles, q_full, q_free = queries_room
    heads, group, queries, keys = sizes
    CONSUMERS: gl.constexpr = FORM.CONSUMERS
    Q_STAGES: gl.constexpr = FORM.Q_STAGES
    program = gl.program_id(0)
    turns, at = turns_of(program, plan, keys, CONSUMERS, FORM.BLOCK_K, FORM.ORDER)
    index = 0  # of the tile, counted over all pieces
    for turn in range(turns):
        piece, at = piece_at(
            turn, at, program, plan, queries, keys, CONSUMERS, FORM.BLOCK_K, FORM.ORDER
        )
        batch_head, block, first, end = piece[0], piece[1], piece[3], piece[4]
        batch, head = batch_head // heads, batch_head % heads
        # step: Bring tiles by TMA
        room = turn % Q_STAGES
        mbarrier.wait(q_free.index(room), parity(turn, Q_STAGES) ^ 1, pred=turn >= Q_STAGES)
        full = q_full.index(room)
        mbarrier.expect(full, CONSUMERS * ROWS * FORM.BLOCK_D * 2)
        for member in gl.static_range(CONSUMERS):
            place = [batch, head, (block + member) * ROWS, 0]
            tile = q_tiles.index(room * CONSUMERS + member)
            tma.async_copy_global_to_shared(q_desc, place, full, tile)
        kv_head = head // group
        for past in range(end, first - 1, -1):
            # Keys run one tile ahead of values, in the order in which the consumers leave their rooms.
            if past > first:
                place = [batch, kv_head, (past - 1) * FORM.BLOCK_K, 0]
                bring(k_desc, rings[0], rings[2], KEYS_FREE, index, place, FORM)
            if past < end:
                place = [batch, kv_head, past * FORM.BLOCK_K, 0]
                bring(v_desc, rings[1], rings[3], VALUES_FREE, index - 1, place, FORM)
            index += gl.where(past > first, 1, 0)


@gluon.jit
def consumer(
    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, member,
    FORM: gl.constexpr,
):  # fmt: skip
    """Attend for one block of 64 queries of each piece, and write its output and log-sum-exp."""
    q_tiles, q_full, q_free = queries_room
    heads, queries, keys = sizes[0], sizes[2], sizes[3]
    CONSUMERS: gl.constexpr = FORM.CONSUMERS
    Q_STAGES: gl.constexpr = FORM.Q_STAGES
    program = gl.program_id(0)
    turns, at = turns_of(program, plan, keys, CONSUMERS, FORM.BLOCK_K, FORM.ORDER)
    index = 0
    for turn in range(turns):
        # step: Keep the multiprocessors busy to the end
        piece, at = piece_at(
            turn, at, program, plan, queries, keys, CONSUMERS, FORM.BLOCK_K, FORM.ORDER
        )
        batch_head, block, active, first, end, slot = piece
        room = turn % Q_STAGES
        mbarrier.wait(q_full.index(room), parity(turn, Q_STAGES))
        if member < active:
            q = q_tiles.index(room * CONSUMERS + member).reshape([ROWS, FORM.BLOCK_D])
            sums, running_max, row_sum = attend(
                q, rings, index, piece, member, queries, keys, scale_log2e, q_free.index(room), FORM
            )
            place = [batch_head // heads, batch_head % heads, (block + member) * ROWS, 0]
            finish(
                sums, running_max, row_sum, descriptors[3], output_room.index(member), place,
                results, batch_head, queries, slot, member, FORM,
            )  # fmt: skip
        else:
            mbarrier.arrive(q_free.index(room))
            pass_by(rings, index, end - first, FORM)
        index += end - first
    tma.store_wait(0)


@gluon.jit
def finish(
    sums, running_max, row_sum, o_desc, room, place, results, batch_head, queries, slot, member,
    FORM: gl.constexpr,
):  # fmt: skip
    """Divide once, and write output and log-sum-exp, or in `slot` what some of the keys gave."""
    SCORES: gl.constexpr = score_layout(FORM.BLOCK_K)
    row_sum = gl.convert_layout(row_sum, gl.SliceLayout(1, SCORES), assert_trivial=True)
    # A row that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
    saw_nothing = row_sum == 0.0
    row_sum = gl.where(saw_nothing, 1.0, row_sum)
    log2_sum = gl.where(saw_nothing, float("-inf"), running_max + gl.log2(row_sum))
    sums = sums * like_rows_of(1.0 / row_sum, sums)
    row = gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    if slot >= 0:
        save_part(sums, log2_sum, results, (slot * FORM.CONSUMERS + member) * ROWS, row)
    else:
        tma.store_wait(0)  # until the output before has left the room
        room.reshape([ROWS, FORM.BLOCK_D]).store(sums.to(o_desc.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(o_desc, place, room)
        # step: Save the log-sum-exp
        query = place[2] + row
        lse_row = results[0] + batch_head.to(gl.int64) * queries
        gl.store(lse_row + query, log2_sum * 0.6931471805599453, mask=query < queries)


@gluon.jit
def save_part(sums, log2_sum, results, first_row, row):
    """Float32, for `merge`: the output of these keys alone, and the logarithm of their sum in powers of two."""
    _, part_ptr, part_lse_ptr = results
    LAYOUT: gl.constexpr = sums.type.layout
    gl.store(part_lse_ptr + first_row + row, log2_sum)
    row = gl.arange(0, sums.shape[0], gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, sums.shape[1], gl.SliceLayout(0, LAYOUT))
    # A launch does not look at addresses; that this begins at 16 bytes lets the compiler move more at once.
    start = gl.multiple_of(part_ptr + first_row.to(gl.int64) * sums.shape[1], 16)
    gl.store(start + row[:, None] * sums.shape[1] + column[None, :], sums)


@gluon.jit
def tiles_of(descriptor, COUNT: gl.constexpr):
    """Shared memory for COUNT of the tiles that a descriptor copies."""
    shape: gl.constexpr = [COUNT] + descriptor.block_type.shape  # noqa: RUF005  Gluon unpacks nothing
    return gl.allocate_shared_memory(descriptor.dtype, shape, descriptor.layout)


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT barriers in shared memory, each of which opens after so many arrivals."""
    bars = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(bars.index(i), count=ARRIVALS)
    return bars


@gluon.jit(
    do_not_specialize=[
        "batch_heads", "blocks", "whole", "share", "heads", "group", "queries", "keys", "scale_log2e",
    ],
    do_not_specialize_on_alignment=["lse_ptr", "part_ptr", "part_lse_ptr"],
)  # fmt: skip
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, part_ptr, part_lse_ptr, batch_heads, blocks, whole, share,
    heads, group, queries, keys, scale_log2e, FORM: gl.constexpr,
):  # fmt: skip
    """One program for each multiprocessor, which stays there until all queries are done."""
    CONSUMERS: gl.constexpr = FORM.CONSUMERS
    Q_STAGES: gl.constexpr = FORM.Q_STAGES
    output_room = tiles_of(o_desc, CONSUMERS)
    queries_room = (
        tiles_of(q_desc, Q_STAGES * CONSUMERS), barriers(Q_STAGES, 1), barriers(Q_STAGES, CONSUMERS)
    )  # fmt: skip
    rings = (
        tiles_of(k_desc, STAGES),
        tiles_of(v_desc, STAGES),
        barriers(STAGES, 1),
        barriers(STAGES, 1),
    )
    fence_async_shared()
    descriptors = (q_desc, k_desc, v_desc, o_desc)
    plan = (batch_heads, blocks, whole, share)
    sizes = (heads, group, queries, keys)
    results = (lse_ptr, part_ptr, part_lse_ptr)
    # step: Split the work between warps
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (consumer, (
                    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, 0, FORM,
                )),
                (producer, (descriptors, queries_room, rings, plan, sizes, FORM)),
            ],
            [1], [FORM.FEW],
        )  # fmt: skip
    elif CONSUMERS == 3:
        gl.warp_specialize(
            [
                (consumer, (
                    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, 0, FORM,
                )),
                (consumer, (
                    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, 1, FORM,
                )),
                (consumer, (
                    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, 2, FORM,
                )),
                (producer, (descriptors, queries_room, rings, plan, sizes, FORM)),
            ],
            [4, 4, 1], [FORM.REGISTERS, FORM.REGISTERS, FORM.FEW],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (consumer, (
                    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, 0, FORM,
                )),
                (consumer, (
                    descriptors, queries_room, rings, output_room, plan, sizes, results, scale_log2e, 1, FORM,
                )),
                (producer, (descriptors, queries_room, rings, plan, sizes, FORM)),
            ],
            [4, 1], [FORM.REGISTERS, FORM.FEW],
        )  # fmt: skip
