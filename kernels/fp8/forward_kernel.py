# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportAssignmentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportReturnType=false
"""Attention in FP8, in Gluon for Hopper. Shah et al. 2024 (FlashAttention-3), section 3.3.

The order of work is that of `kernels.fa3`: a producer warp brings tiles by TMA, consumers of 64 queries each
score the next tile while the softmax of this one runs. Other than there a step of the ring brings the keys of one
tile together with the values of the tile before, which is what one step uses; consumers take no turns, no tile is
split along its keys, and none is scored two steps before its values are added: nothing of that was faster.
"""

from __future__ import annotations

from kernels.fp8.forward_steps import FREE, attend
from kernels.fp8.weights import ROWS, like_rows_of, product_layout
from kernels.hopper import (
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    parity,
    tma,
    wait_at,
)


@gluon.jit
def piece_at(turn, sizes, C: gl.constexpr):
    """-> batch * heads + head, the first query of this program's tile, and how many key tiles it sees part of.

    Tiles of one head follow each other, so that its keys stay in L2; of a causal head the longest comes first.
    """
    _, _, queries, keys, _, _, _ = sizes
    TILE: gl.constexpr = C.CONSUMERS * ROWS
    tiles = gl.cdiv(queries, TILE)
    number = gl.program_id(0) + turn * gl.num_programs(0)
    row = number % tiles * TILE
    key_tiles = gl.cdiv(keys, C.BLOCK_K)
    if C.CAUSAL:
        row = (tiles - 1 - number % tiles) * TILE
        seen = gl.minimum(keys, row + TILE + keys - queries)
        key_tiles = gl.maximum(1, gl.cdiv(seen, C.BLOCK_K))
    return number // tiles, row, key_tiles


@gluon.jit
def producer(descriptors, tiles, sizes, C: gl.constexpr):
    """Bring the queries of each piece; then, from its last tile to its first, keys with the values before them."""
    q_desc, k_desc, v_desc = descriptors
    q_tiles, k_tiles, v_tiles, q_full, q_empty, full = tiles
    _, group, _, _, q_rows, k_rows, total = sizes
    BYTES: gl.constexpr = C.BLOCK_K * C.HEAD_DIM
    CONSUMERS: gl.constexpr = C.CONSUMERS
    index = 0  # of the step, counted over all pieces
    for turn in range(gl.cdiv(total - gl.program_id(0), gl.num_programs(0))):
        batch_head, row, end = piece_at(turn, sizes, C)
        slot = turn % C.Q_STAGES
        mbarrier.wait(q_empty.index(slot), parity(turn, C.Q_STAGES) ^ 1)
        q_bar = q_full.index(slot)
        mbarrier.expect(q_bar, C.CONSUMERS * ROWS * C.HEAD_DIM)
        for member in gl.static_range(CONSUMERS):
            place = batch_head * q_rows + row + member * ROWS
            q_tile = q_tiles.index(slot * C.CONSUMERS + member)
            tma.async_copy_global_to_shared(q_desc, [place, 0], q_bar, q_tile)
        kv_head = batch_head // group
        for step in range(0, end + 1):
            stage = index % C.STAGES
            bar = full.index(stage)
            key = (end - 1 - step) * C.BLOCK_K
            if index >= C.STAGES:
                wait_at(FREE + stage, 128 * C.CONSUMERS + 32)
            if (step == 0) | (step == end):
                mbarrier.expect(bar, BYTES)
            else:
                mbarrier.expect(bar, 2 * BYTES)
            if step < end:
                tma.async_copy_global_to_shared(
                    k_desc, [kv_head * k_rows + key, 0], bar, k_tiles.index(stage)
                )
            if step > 0:
                tma.async_copy_global_to_shared(
                    v_desc, [kv_head * C.HEAD_DIM, key + C.BLOCK_K], bar, v_tiles.index(stage)
                )
            index += 1


@gluon.jit
def consumer(
    tiles, sizes, scales, results, strides, scale_log2e, member: gl.constexpr, C: gl.constexpr
):
    """Attend for one block of 64 queries of each piece, and write its output and log-sum-exp."""
    q_tiles, _, _, q_full, q_empty, _ = tiles
    _, group, queries, keys, q_rows, k_rows, total = sizes
    q_scales, k_scales, v_scales, q_offsets, v_centres = scales
    index = 0
    for turn in range(gl.cdiv(total - gl.program_id(0), gl.num_programs(0))):
        batch_head, first, end = piece_at(turn, sizes, C)
        kv_head = batch_head // group
        # A consumer past the last block works on that one, with the others, and writes nothing.
        row = gl.minimum(first + member * ROWS, q_rows - ROWS)
        scale = gl.load(q_scales + (batch_head * q_rows + row) // ROWS) * scale_log2e
        slot = turn % C.Q_STAGES
        mbarrier.wait(q_full.index(slot), parity(turn, C.Q_STAGES))
        sums, shift, row_sum = attend(
            q_tiles.index(slot * C.CONSUMERS + member), q_empty.index(slot), tiles, index, end, row,
            first + 1 + keys - queries, k_scales + kv_head * (k_rows // C.BLOCK_K), scale,
            queries, keys, C,
        )  # fmt: skip
        index += end + 1
        if row == first + member * ROWS:
            finish(
                sums, shift, row_sum, batch_head, row, sizes, v_scales + kv_head * C.HEAD_DIM,
                v_centres + kv_head * C.HEAD_DIM, q_offsets + batch_head * q_rows,
                scale_log2e, results, strides, C,
            )  # fmt: skip


@gluon.jit
def finish(
    sums, shift, row_sum, batch_head, row, sizes, v_scales, v_centres, q_offsets, scale_log2e,
    results, strides, C: gl.constexpr,
):  # fmt: skip
    """Divide, scale each channel of V back, and write."""
    heads, _, queries, _, _, _, _ = sizes
    lse_ptr, output_ptr = results
    S: gl.constexpr = product_layout(C.BLOCK_K)
    O: gl.constexpr = product_layout(C.HEAD_DIM)
    # A row that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
    row_sum = gl.convert_layout(row_sum, gl.SliceLayout(1, S), assert_trivial=True)
    saw_nothing = row_sum == 0.0
    row_sum = gl.where(saw_nothing, 1.0, row_sum)
    query = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    log2_sum = shift + gl.log2(row_sum) + gl.load(q_offsets + query) * scale_log2e
    log_sum_exp = gl.where(saw_nothing, float("-inf"), log2_sum) * 0.6931471805599453  # log(2)
    start = lse_ptr + batch_head.to(gl.int64) * queries
    gl.store(start + query, log_sum_exp, mask=query < queries)
    column = gl.arange(0, C.HEAD_DIM, layout=gl.SliceLayout(0, O))
    sums = sums * like_rows_of(1.0 / row_sum, sums) * gl.load(v_scales + column)[None, :]
    # The weights of a row are 1 together, so the centre of V is there once; not where nothing was seen.
    once = like_rows_of(gl.where(saw_nothing, 0.0, 1.0), sums)
    sums += once * gl.load(v_centres + column)[None, :]
    query = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, O))
    batch, head = (batch_head // heads).to(gl.int64), (batch_head % heads).to(gl.int64)
    start = output_ptr + batch * strides[0] + head * strides[1]
    # Rows of HEAD_DIM numbers begin at 16 bytes, which a launch does not look at: so two are written at once.
    rows = gl.multiple_of(query.to(gl.int64)[:, None] * strides[2], [8, 8])
    pointers = gl.multiple_of(start, 16) + rows + column[None, :]
    values = sums.to(output_ptr.dtype.element_ty)
    gl.store(pointers, values, mask=(query < queries)[:, None])


SIZES = ("heads", "group", "queries", "keys", "q_rows", "k_rows", "total")
STRIDES = ("batch_stride", "head_stride", "row_stride")


@gluon.jit(
    do_not_specialize=[*SIZES, *STRIDES, "scale_log2e"],
    do_not_specialize_on_alignment=["lse_ptr", "output_ptr"],
)
def forward_kernel(
    q_desc, k_desc, v_desc, q_scales, k_scales, v_scales, q_offsets, v_centres, lse_ptr, output_ptr,
    batch_stride, head_stride, row_stride, heads, group, queries, keys, q_rows, k_rows, total,
    scale_log2e, C: gl.constexpr,
):  # fmt: skip
    """Each program takes every num_programs-th of `total` tiles of queries."""
    # Numbers and not tuples of them as arguments: those inside of a tuple are always specialised.
    sizes = (heads, group, queries, keys, q_rows, k_rows, total)
    strides = (batch_stride, head_stride, row_stride)
    e4m3: gl.constexpr = gl.float8e4nv
    q_tiles = gl.allocate_shared_memory(
        e4m3, [C.Q_STAGES * C.CONSUMERS, ROWS, C.HEAD_DIM], q_desc.layout
    )
    k_tiles = gl.allocate_shared_memory(e4m3, [C.STAGES, C.BLOCK_K, C.HEAD_DIM], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(e4m3, [C.STAGES, C.HEAD_DIM, C.BLOCK_K], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [C.Q_STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [C.Q_STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [C.STAGES, 1], mbarrier.MBarrierLayout())
    Q_STAGES: gl.constexpr = C.Q_STAGES
    for slot in gl.static_range(Q_STAGES):
        mbarrier.init(q_full.index(slot), count=1)
        mbarrier.init(q_empty.index(slot), count=C.CONSUMERS)
    STAGES: gl.constexpr = C.STAGES
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    descs = (q_desc, k_desc, v_desc)
    tiles = (q_tiles, k_tiles, v_tiles, q_full, q_empty, full)
    scales = (q_scales, k_scales, v_scales, q_offsets, v_centres)
    results = (lse_ptr, output_ptr)
    if C.CONSUMERS == 3:
        gl.warp_specialize(
            [
                (consumer, (tiles, sizes, scales, results, strides, scale_log2e, 0, C)),
                (consumer, (tiles, sizes, scales, results, strides, scale_log2e, 1, C)),
                (consumer, (tiles, sizes, scales, results, strides, scale_log2e, 2, C)),
                (producer, (descs, tiles, sizes, C)),
            ],
            [4, 4, 1],
            [C.REGISTERS, C.REGISTERS, C.FEW],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (tiles, sizes, scales, results, strides, scale_log2e, 0, C)),
                (consumer, (tiles, sizes, scales, results, strides, scale_log2e, 1, C)),
                (producer, (descs, tiles, sizes, C)),
            ],
            [4, 1],
            [C.REGISTERS, C.FEW],
        )
