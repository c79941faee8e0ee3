# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportAssignmentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportReturnType=false
"""Attention in FP8, in Gluon for Hopper. Shah et al. 2024 (FlashAttention-3), section 3.3.

The order of work is that of `kernels.fa3`: a producer warp brings tiles by TMA, consumers of 64 queries each
score the next tile while the softmax of this one runs, and take turns at the matrix units. Other than there a step
of the ring brings the keys of one tile together with the values of the tile before: what one step uses.
"""

from __future__ import annotations

from kernels.fp8.weights import (
    ROWS,
    as_operand,
    hide,
    lane_sums,
    like_rows_of,
    pack,
    product_layout,
    rescaled,
    soften,
)
from kernels.hopper import (
    FIRST_BARRIER,
    arrive_at,
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    parity,
    tma,
    wait_at,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Named barriers. Consumers give each other turns at the first three; the producer waits at the others.
TURN = FIRST_BARRIER
FREE = gl.constexpr(FIRST_BARRIER.value + 3)


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
        mbarrier.wait(q_empty, (turn & 1) ^ 1)
        mbarrier.expect(q_full, C.CONSUMERS * ROWS * C.HEAD_DIM)
        for member in gl.static_range(CONSUMERS):
            place = batch_head * q_rows + row + member * ROWS
            tma.async_copy_global_to_shared(q_desc, [place, 0], q_full, q_tiles.index(member))
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
def score(q, k_tiles, stage, C: gl.constexpr):
    """Begin Q K^T of the tile in `stage`."""
    empty = gl.full([ROWS, C.BLOCK_K], 0.0, gl.float32, product_layout(C.BLOCK_K))
    tile = k_tiles.index(stage).permute([1, 0])
    return warpgroup_mma(q, tile, empty, use_acc=False, is_async=True)


@gluon.jit
def weigh(packed, v_tiles, stage, sums, C: gl.constexpr):
    """Begin P V of the tile in `stage`: a sum of its own with PROMOTE, else on top of `sums`."""
    O: gl.constexpr = product_layout(C.HEAD_DIM)
    tile = v_tiles.index(stage).permute([1, 0])
    if C.PROMOTE:
        sums = gl.full([ROWS, C.HEAD_DIM], 0.0, gl.float32, O)
    return warpgroup_mma(as_operand(packed, O), tile, sums, use_acc=not C.PROMOTE, is_async=True)


@gluon.jit
def settle(sums, product, factor, factor_before, C: gl.constexpr):
    """What was summed so far, against the present maximum.

    Hopper adds FP8 products with some 14 bits. With PROMOTE each tile's product is a sum of its own, added
    here in float32; this runs while the next scores are worked out, so the matrix units do not wait.
    """
    if C.PROMOTE:
        return sums * like_rows_of(factor_before, sums) + product
    return rescaled(product, like_rows_of(factor, sums), C.LAZY)


@gluon.jit
def step(
    state, q, tiles, index, scale, first_hidden, member: gl.constexpr, MASKED: gl.constexpr, C: gl.constexpr
):  # fmt: skip
    """Score the keys of step `index`, and while their weights are worked out add its values."""
    _, k_tiles, v_tiles, _, _, full = tiles
    sums, product, shift, row_sum, packed, factor, factor_before = state
    stage = index % C.STAGES
    if not C.EARLY:
        mbarrier.wait(full.index(stage), parity(index, C.STAGES))
    if C.TURNS:
        wait_at(TURN + member, 256)
    scores = score(q, k_tiles, stage, C)
    sums = settle(sums, product, factor, factor_before, C)
    product = weigh(packed, v_tiles, stage, sums, C)
    if C.TURNS:
        arrive_at(TURN + (member + 1) % C.CONSUMERS, 256)
    scores = warpgroup_mma_wait(1, deps=[scores])
    if MASKED:
        scores = hide(scores, first_hidden)
    weights, shift, new_factor = soften(scores, shift, scale, MASKED, C.LAZY, C.QUICK)
    row_sum = row_sum * like_rows_of(new_factor, row_sum) + lane_sums(weights)
    new_packed = packed
    if not C.LATE:
        new_packed = pack(weights)
    if C.EARLY:
        # Waiting here for the next step keeps the compiler from waiting for the product any earlier.
        mbarrier.wait(full.index((index + 1) % C.STAGES), parity(index + 1, C.STAGES))
    product, packed = warpgroup_mma_wait(0, deps=[product, packed])
    arrive_at(FREE + stage, 128 * C.CONSUMERS + 32)
    if C.LATE:
        new_packed = pack(weights)
    return sums, product, shift, row_sum, new_packed, new_factor, factor


@gluon.jit
def begin(q, tiles, index, first_hidden, scale, C: gl.constexpr):
    """The tile that comes first, some of it hidden, by itself. -> the state of the loop"""
    _, k_tiles, _, _, _, full = tiles
    S: gl.constexpr = product_layout(C.BLOCK_K)
    stage = index % C.STAGES
    mbarrier.wait(full.index(stage), parity(index, C.STAGES))
    scores = warpgroup_mma_wait(0, deps=[score(q, k_tiles, stage, C)])
    arrive_at(FREE + stage, 128 * C.CONSUMERS + 32)
    scores = hide(scores, first_hidden)
    shift = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S))
    weights, shift, factor = soften(scores, shift, scale, True, C.LAZY, 0)
    sums = gl.full([ROWS, C.HEAD_DIM], 0.0, gl.float32, product_layout(C.HEAD_DIM))
    if C.EARLY:
        mbarrier.wait(full.index((index + 1) % C.STAGES), parity(index + 1, C.STAGES))
    return sums, sums, shift, lane_sums(weights), pack(weights), factor, factor


@gluon.jit
def end_with(state, tiles, index, C: gl.constexpr):
    """Add the values of the last tile. -> sums, shift, sum of a row"""
    _, _, v_tiles, _, _, full = tiles
    sums, product, shift, row_sum, packed, factor, factor_before = state
    stage = index % C.STAGES
    if not C.EARLY:
        mbarrier.wait(full.index(stage), parity(index, C.STAGES))
    sums = settle(sums, product, factor, factor_before, C)
    product = weigh(packed, v_tiles, stage, sums, C)
    product, packed = warpgroup_mma_wait(0, deps=[product, packed])
    arrive_at(FREE + stage, 128 * C.CONSUMERS + 32)
    if C.PROMOTE:
        product = sums * like_rows_of(factor, sums) + product
    return product, shift, gl.sum(row_sum, 1)


@gluon.jit
def attend(
    q, tiles, index, end, row, seen, k_scales, scale, queries, keys,
    member: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """What 64 queries from `row` on get from `end` key tiles. -> sums, shift, sum of a row

    `seen`: how many keys the first row of this piece sees, and so all of its rows.
    """
    S: gl.constexpr = product_layout(C.BLOCK_K)
    first_hidden = gl.full([ROWS], keys, gl.int32, gl.SliceLayout(1, S))
    unmasked = end - 1
    if C.CAUSAL:
        query = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
        first_hidden = gl.minimum(keys, query + 1 + keys - queries)
        unmasked = gl.minimum(unmasked, gl.maximum(seen, 0) // C.BLOCK_K)
    last_scale = gl.load(k_scales + end - 1) * scale
    hidden = first_hidden - (end - 1) * C.BLOCK_K
    state = begin(q, tiles, index, hidden, last_scale, C)
    if C.CAUSAL:
        for place in range(end - 2, unmasked - 1, -1):
            index += 1
            block_scale = gl.load(k_scales + place) * scale
            hidden = first_hidden - place * C.BLOCK_K
            state = step(state, q, tiles, index, block_scale, hidden, member, True, C)
    for place in range(unmasked - 1, -1, -1):
        index += 1
        block_scale = gl.load(k_scales + place) * scale
        state = step(state, q, tiles, index, block_scale, first_hidden, member, False, C)
    _, _, _, _, q_empty, _ = tiles
    mbarrier.arrive(q_empty)
    return end_with(state, tiles, index + 1, C)


@gluon.jit
def consumer(
    tiles, sizes, scales, results, strides, scale_log2e, member: gl.constexpr, C: gl.constexpr
):
    """Attend for one block of 64 queries of each piece, and write its output and log-sum-exp."""
    q_tiles, _, _, q_full, _, _ = tiles
    _, group, queries, keys, q_rows, k_rows, total = sizes
    q_scales, k_scales, v_scales, q_offsets, v_centres = scales
    if C.TURNS and member == C.CONSUMERS - 1:
        arrive_at(TURN, 256)
    index = 0
    for turn in range(gl.cdiv(total - gl.program_id(0), gl.num_programs(0))):
        batch_head, first, end = piece_at(turn, sizes, C)
        kv_head = batch_head // group
        # A consumer past the last block works on that one, with the others, and writes nothing.
        row = gl.minimum(first + member * ROWS, q_rows - ROWS)
        scale = gl.load(q_scales + (batch_head * q_rows + row) // ROWS) * scale_log2e
        mbarrier.wait(q_full, turn & 1)
        sums, shift, row_sum = attend(
            q_tiles.index(member), tiles, index, end, row, first + 1 + keys - queries,
            k_scales + kv_head * (k_rows // C.BLOCK_K), scale, queries, keys, member, C,
        )  # fmt: skip
        index += end + 1
        if row == first + member * ROWS:
            finish(
                sums, shift, row_sum, batch_head, row, sizes, v_scales + kv_head * C.HEAD_DIM,
                v_centres + kv_head * C.HEAD_DIM, q_offsets + batch_head * q_rows,
                scale_log2e, results, strides, C,
            )  # fmt: skip
    if C.TURNS and member == 0:
        wait_at(TURN, 256)


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
    pointers = start + query.to(gl.int64)[:, None] * strides[2] + column[None, :]
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
    q_tiles = gl.allocate_shared_memory(e4m3, [C.CONSUMERS, ROWS, C.HEAD_DIM], q_desc.layout)
    k_tiles = gl.allocate_shared_memory(e4m3, [C.STAGES, C.BLOCK_K, C.HEAD_DIM], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(e4m3, [C.STAGES, C.HEAD_DIM, C.BLOCK_K], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [C.STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    mbarrier.init(q_empty, count=C.CONSUMERS)
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
