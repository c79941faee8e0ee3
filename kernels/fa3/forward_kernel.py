# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""FlashAttention-3, forward, in Gluon for Hopper. Shah et al. 2024, Algorithms 1 and 2.

A program is one producer warp, which brings tiles by TMA, and CONSUMERS warpgroups of 64 queries, which share
the tiles of keys and values. The tile that may reach past the last key, or past what a causal mask shows,
comes first, so the loop over the others has no mask.
"""

from __future__ import annotations

from kernels.fa3.schedule import CAUSAL, ROWS, piece_at, turns_of
from kernels.hopper import (
    FIRST_BARRIER,
    arrive_at,
    arrive_at_if,
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    parity,
    score_layout,
    tma,
    wait_at,
    wait_at_if,
    warpgroup_mma,
    warpgroup_mma_wait,
)

STAGES = gl.constexpr(2)
"""Key tiles, and value tiles, that are in shared memory at once."""

# Named barriers. Consumers give each other turns at the first three; the producer waits at the others.
TURN = FIRST_BARRIER
KEYS_FREE = gl.constexpr(FIRST_BARRIER.value + 3)
VALUES_FREE = gl.constexpr(FIRST_BARRIER.value + 5)
QUERIES_FREE = gl.constexpr(FIRST_BARRIER.value + 7)

RISE = gl.constexpr(8.0)
"""Powers of two that the maximum may rise before the sums are rescaled."""


@gluon.jit
def producer(descriptors, tiles, plan, sizes, C: gl.constexpr):
    """Bring the queries of each piece, then its key and value tiles from the last to the first."""
    q_desc, k_desc, v_desc, o_desc = descriptors
    q_tiles, k_tiles, v_tiles, o_tiles, q_full, k_full, v_full = tiles
    heads, group, queries, keys = sizes
    CONSUMERS: gl.constexpr = C.CONSUMERS
    THREADS: gl.constexpr = 128 * CONSUMERS + 32
    program = gl.program_id(0)
    turns, at = turns_of(program, plan, keys, CONSUMERS, C.BLOCK_K, C.ORDER)
    index = 0  # of the tile, counted over all pieces
    for turn in range(turns):
        piece, at = piece_at(
            turn, at, program, plan, queries, keys, C.CONSUMERS, C.BLOCK_K, C.ORDER
        )
        batch_head, block, active, first, end, slot = piece
        batch, head = batch_head // heads, batch_head % heads
        if turn > 0:
            wait_at(QUERIES_FREE, THREADS)
        mbarrier.expect(q_full, CONSUMERS * ROWS * C.BLOCK_D * 2)
        for member in gl.static_range(CONSUMERS):
            tma.async_copy_global_to_shared(
                q_desc, [batch, head, (block + member) * ROWS, 0], q_full,
                q_tiles.index(member),
            )  # fmt: skip
        kv_head = head // group
        for step in range(0, end - first + 1):
            # Keys run one tile ahead of values, in the order in which the consumers free their places.
            if step < end - first:
                stage = index % STAGES
                if index >= STAGES:
                    wait_at(KEYS_FREE + stage, THREADS)
                key = (end - 1 - step) * C.BLOCK_K
                bar = k_full.index(stage)
                mbarrier.expect(bar, C.BLOCK_K * C.BLOCK_D * 2)
                tma.async_copy_global_to_shared(
                    k_desc, [batch, kv_head, key, 0], bar, k_tiles.index(stage)
                )
                index += 1
            if step > 0:
                last = index - 1 - (step < end - first).to(gl.int32)
                stage = last % STAGES
                if last >= STAGES:
                    wait_at(VALUES_FREE + stage, THREADS)
                key = (end - step) * C.BLOCK_K
                bar = v_full.index(stage)
                mbarrier.expect(bar, C.BLOCK_K * C.BLOCK_D * 2)
                tma.async_copy_global_to_shared(
                    v_desc, [batch, kv_head, key, 0], bar, v_tiles.index(stage)
                )


@gluon.jit
def pass_by(k_full, v_full, index, count, THREADS: gl.constexpr):
    """Let `count` tiles pass: a consumer without rows only keeps the rings turning."""
    for tile in range(index, index + count):
        stage = tile % STAGES
        mbarrier.wait(k_full.index(stage), parity(tile, STAGES))
        arrive_at(KEYS_FREE + stage, THREADS)
        mbarrier.wait(v_full.index(stage), parity(tile, STAGES))
        arrive_at(VALUES_FREE + stage, THREADS)


@gluon.jit
def lane_sums(weights):
    """The sum of a row, left in its four threads' parts: they are added once, at the end. -> [ROWS, 4]"""
    parts = gl.reshape(weights, [weights.shape[0], weights.shape[1] // 8, 4, 2])
    return gl.sum(gl.sum(parts, 3), 1)


@gluon.jit
def like_rows_of(vector, other):
    """A number for each row, held as the rows of `other` are: by the same threads, so nothing moves."""
    LAYOUT: gl.constexpr = other.type.layout
    return gl.convert_layout(vector, gl.SliceLayout(1, LAYOUT), assert_trivial=True)[:, None]


@gluon.jit
def hide(scores, first_hidden):
    """-inf from that key of this tile on which is hidden first from each row. `first_hidden` [ROWS]

    A thread's columns are 8 a + 2 b + c, where only b differs between the four threads of a row: compared
    with first_hidden - 2 b, the others are constants of the code and need no registers.
    """
    S: gl.constexpr = scores.type.layout
    parts = gl.reshape(scores, [scores.shape[0], scores.shape[1] // 8, 4, 2])
    L: gl.constexpr = parts.type.layout
    ROW_LANE: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, L))
    a = gl.arange(
        0, scores.shape[1] // 8, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, L)))
    )
    b = gl.arange(0, 4, gl.SliceLayout(0, ROW_LANE))
    c = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L))))
    limit = gl.convert_layout(first_hidden, gl.SliceLayout(1, ROW_LANE), assert_trivial=True)
    limit = limit[:, None] - 2 * b[None, :]
    seen = (8 * a)[None, :, None, None] + c[None, None, None, :] < limit[:, None, :, None]
    parts = gl.where(seen, parts, float("-inf"))
    return gl.convert_layout(gl.reshape(parts, scores.shape), S, assert_trivial=True)


@gluon.jit
def soften(scores, running_max, scale_log2e, MASKED: gl.constexpr, LAZY: gl.constexpr):
    """-> weights, the new maximum, and the factor for what was summed before. All in powers of two.

    LAZY: a maximum that rises little stays as it is, which changes no result: it is divided out at the end.
    """
    new_max = gl.maximum(running_max, gl.max(scores, 1) * scale_log2e)
    if LAZY:
        new_max = gl.where(new_max - running_max > RISE, new_max, running_max)
    shift = new_max
    if MASKED:
        # A row that has seen nothing yet stays at -inf, and -inf - -inf would be NaN.
        shift = gl.where(new_max == float("-inf"), 0.0, new_max)
    weights = gl.exp2(scores * scale_log2e - shift[:, None])
    return weights, new_max, gl.exp2(running_max - shift)


@gluon.constexpr_function
def multiply_text(count):
    """Multiply `count` numbers in place, unless both rows of this thread have the factor 1."""
    products = " ".join(f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count))
    return (
        f"{{ .reg .pred p; setp.ne.f32 p, ${2 * count}, 0f3F800000; "
        f"setp.ne.or.f32 p, ${2 * count + 2}, 0f3F800000, p; @!p bra SAME; {products} SAME: }}"
    )


@gluon.constexpr_function
def multiply_constraints(count):
    tied = [str(i) for i in range(count)]
    return ",".join(["=f"] * count + tied + ["f"] * count)


@gluon.jit
def rescaled(sums, factor, LAZY: gl.constexpr):
    """sums * factor[:, None]; LAZY: skipped where no row of the warp asks for it, which is nearly always."""
    if not LAZY:
        return sums * factor
    COUNT: gl.constexpr = sums.shape[1] // 2  # of one thread
    return gl.inline_asm_elementwise(
        multiply_text(COUNT), multiply_constraints(COUNT), [sums, factor],
        dtype=gl.float32, is_pure=True, pack=COUNT,
    )  # fmt: skip


@gluon.jit
def step(
    state, q, k, v, k_full, v_full, index, scale_log2e, turn_taken, handed_over, member, following,
    C: gl.constexpr,
):  # fmt: skip
    """Score tile `index`, and while its weights are worked out add what tile `index` - 1 weighs."""
    sums, running_max, row_sum, packed = state
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    S: gl.constexpr = score_layout(C.BLOCK_K)
    O: gl.constexpr = score_layout(C.BLOCK_D)
    stage = index % STAGES
    last = (index - 1) % STAGES
    mbarrier.wait(k_full.index(stage), parity(index, STAGES))
    if not C.EARLY:
        mbarrier.wait(v_full.index(last), parity(index - 1, STAGES))
    # step: Take turns
    if C.TURNS:
        wait_at_if(turn_taken, TURN + member, 256)
    # step: Score the next tile early
    keys = k.index(stage).reshape([C.BLOCK_K, C.BLOCK_D]).permute([1, 0])
    values = v.index(last).reshape([C.BLOCK_K, C.BLOCK_D])
    empty = gl.full([ROWS, C.BLOCK_K], 0.0, gl.float32, S)
    scores = warpgroup_mma(q, keys, empty, use_acc=False, is_async=True)
    sums = warpgroup_mma(packed, values, sums, is_async=True)
    if C.TURNS:
        arrive_at_if(handed_over, TURN + following, 256)
    scores = warpgroup_mma_wait(1, deps=[scores])
    arrive_at(KEYS_FREE + stage, THREADS)
    # step: Softmax while the matrix units work
    weights, running_max, factor = soften(scores, running_max, scale_log2e, False, C.LAZY)
    row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
    if C.EARLY:
        # Waiting here for the next values keeps the compiler from waiting for the product any earlier.
        mbarrier.wait(v_full.index(stage), parity(index, STAGES))
    sums = warpgroup_mma_wait(0, deps=[sums])
    arrive_at(VALUES_FREE + last, THREADS)
    sums = rescaled(sums, like_rows_of(factor, sums), C.LAZY)
    packed = gl.convert_layout(weights.to(k.dtype), gl.DotOperandLayout(0, O, 2))
    return sums, running_max, row_sum, packed


@gluon.jit
def look_at(q, k, k_full, index, first_hidden, running_max, scale_log2e, C: gl.constexpr):
    """Score tile `index`, which may be hidden in part. -> weights, maximum, and the factor for the sums"""
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    S: gl.constexpr = score_layout(C.BLOCK_K)
    stage = index % STAGES
    mbarrier.wait(k_full.index(stage), parity(index, STAGES))
    tile = k.index(stage).reshape([C.BLOCK_K, C.BLOCK_D]).permute([1, 0])
    empty = gl.full([ROWS, C.BLOCK_K], 0.0, gl.float32, S)
    scores = warpgroup_mma(q, tile, empty, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=[scores])
    arrive_at(KEYS_FREE + stage, THREADS)
    return soften(hide(scores, first_hidden), running_max, scale_log2e, True, False)


@gluon.jit
def add_values(sums, packed, v, v_full, index, C: gl.constexpr):
    """sums + P V of tile `index`."""
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    stage = index % STAGES
    mbarrier.wait(v_full.index(stage), parity(index, STAGES))
    tile = v.index(stage).reshape([C.BLOCK_K, C.BLOCK_D])
    sums = warpgroup_mma(packed, tile, sums, is_async=True)
    sums = warpgroup_mma_wait(0, deps=[sums])
    arrive_at(VALUES_FREE + stage, THREADS)
    return sums


@gluon.jit
def attend(
    q, k, v, k_full, v_full, index, first, end, row, seen, active, member, queries, keys, scale_log2e,
    C: gl.constexpr,
):  # fmt: skip
    """What 64 queries from `row` on get from key tiles first ... end - 1. -> sums, maximum, sum of a row

    `seen`: how many keys the first row of this piece sees, and so all of its rows.
    """
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    S: gl.constexpr = score_layout(C.BLOCK_K)
    O: gl.constexpr = score_layout(C.BLOCK_D)
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    sums = gl.full([ROWS, C.BLOCK_D], 0.0, gl.float32, O)
    running_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S))
    first_hidden = gl.full([ROWS], keys, gl.int32, gl.SliceLayout(1, S))
    place = end - 1
    if C.ORDER == CAUSAL:
        query = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
        first_hidden = gl.minimum(keys, query + 1 + keys - queries)
        place = gl.minimum(place, gl.maximum(first, seen // C.BLOCK_K))
        row_sum = lane_sums(gl.full([ROWS, C.BLOCK_K], 0.0, gl.float32, S))
        for past in range(end - 1, place, -1):
            weights, running_max, factor = look_at(
                q, k, k_full, index, first_hidden - past * C.BLOCK_K, running_max, scale_log2e, C
            )
            row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
            packed = gl.convert_layout(weights.to(k.dtype), P)
            sums = sums * like_rows_of(factor, sums)
            sums = add_values(sums, packed, v, v_full, index, C)
            index += 1
    weights, running_max, factor = look_at(
        q, k, k_full, index, first_hidden - place * C.BLOCK_K, running_max, scale_log2e, C
    )
    packed = gl.convert_layout(weights.to(k.dtype), P)
    if C.ORDER == CAUSAL:
        sums = sums * like_rows_of(factor, sums)
        row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
    else:
        row_sum = lane_sums(weights)
    state = sums, running_max, row_sum, packed
    if C.EARLY:
        mbarrier.wait(v_full.index(index % STAGES), parity(index, STAGES))

    together = active > 1
    following = gl.where(member + 1 < active, member + 1, 0)
    arrive_at_if(together & (following == 0) & (place > first), TURN, 256)
    for past in range(place - 1, first - 1, -1):
        index += 1
        state = step(
            state, q, k, v, k_full, v_full, index, scale_log2e,
            together, together & ((following > 0) | (past > first)), member, following, C,
        )  # fmt: skip
    arrive_at(QUERIES_FREE, THREADS)
    sums, running_max, row_sum, packed = state
    return add_values(sums, packed, v, v_full, index, C), running_max, gl.sum(row_sum, 1)


@gluon.jit
def consumer(descriptors, tiles, plan, sizes, results, scale_log2e, member, C: gl.constexpr):
    """Attend for one block of 64 queries of each piece, and write its output and log-sum-exp."""
    o_desc = descriptors[3]
    q_tiles, k_tiles, v_tiles, o_tiles, q_full, k_full, v_full = tiles
    heads, group, queries, keys = sizes
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    S: gl.constexpr = score_layout(C.BLOCK_K)
    O: gl.constexpr = score_layout(C.BLOCK_D)
    program = gl.program_id(0)
    turns, at = turns_of(program, plan, keys, C.CONSUMERS, C.BLOCK_K, C.ORDER)
    index = 0
    for turn in range(turns):
        piece, at = piece_at(
            turn, at, program, plan, queries, keys, C.CONSUMERS, C.BLOCK_K, C.ORDER
        )
        batch_head, block, active, first, end, slot = piece
        mbarrier.wait(q_full, turn & 1)
        if member < active:
            row = (block + member) * ROWS
            q = q_tiles.index(member).reshape([ROWS, C.BLOCK_D])
            sums, running_max, row_sum = attend(
                q, k_tiles, v_tiles, k_full, v_full, index, first, end, row,
                block * ROWS + 1 + keys - queries, active, member, queries, keys, scale_log2e, C,
            )  # fmt: skip
            # A row that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
            row_sum = gl.convert_layout(row_sum, gl.SliceLayout(1, S), assert_trivial=True)
            saw_nothing = row_sum == 0.0
            row_sum = gl.where(saw_nothing, 1.0, row_sum)
            log2_sum = gl.where(saw_nothing, float("-inf"), running_max + gl.log2(row_sum))
            sums = sums * like_rows_of(1.0 / row_sum, sums)
            if slot >= 0:
                save_part(sums, log2_sum, results, slot * C.CONSUMERS + member, S, O)
            else:
                tma.store_wait(0)
                buffer = o_tiles.index(member)
                buffer.reshape([ROWS, C.BLOCK_D]).store(sums.to(k_tiles.dtype))
                fence_async_shared()
                tma.async_copy_shared_to_global(
                    o_desc, [batch_head // heads, batch_head % heads, row, 0], buffer
                )
                save_log_sum_exp(log2_sum, results[0], batch_head, row, queries, S)
        else:
            arrive_at(QUERIES_FREE, THREADS)
            pass_by(k_full, v_full, index, end - first, THREADS)
        index += end - first
    tma.store_wait(0)


@gluon.jit
def save_log_sum_exp(log2_sum, lse_ptr, batch_head, row, queries, S: gl.constexpr):
    """Natural logarithms, for those rows that exist."""
    place = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    start = lse_ptr + batch_head.to(gl.int64) * queries
    gl.store(start + place, log2_sum * 0.6931471805599453, mask=place < queries)


@gluon.jit
def save_part(sums, log2_sum, results, block, S: gl.constexpr, O: gl.constexpr):
    """The result of some of the keys, float32, for `merge`."""
    _, part_ptr, part_lse_ptr = results
    row = block.to(gl.int64) * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, O))
    column = gl.arange(0, sums.shape[1], layout=gl.SliceLayout(0, O))
    gl.store(part_ptr + row[:, None] * sums.shape[1] + column[None, :], sums)
    place = block * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    gl.store(part_lse_ptr + place, log2_sum)


@gluon.jit(
    do_not_specialize=["plan", "sizes", "scale_log2e"],
    do_not_specialize_on_alignment=["lse_ptr", "part_ptr", "part_lse_ptr"],
)
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, part_ptr, part_lse_ptr, plan, sizes, scale_log2e,
    C: gl.constexpr,
):  # fmt: skip
    """One program for each multiprocessor, which stays there until all queries are done."""
    dtype: gl.constexpr = q_desc.dtype
    q_tiles = gl.allocate_shared_memory(dtype, [C.CONSUMERS, 1, 1, ROWS, C.BLOCK_D], q_desc.layout)
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, C.BLOCK_K, C.BLOCK_D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, C.BLOCK_K, C.BLOCK_D], v_desc.layout)
    o_tiles = gl.allocate_shared_memory(dtype, [C.CONSUMERS, 1, 1, ROWS, C.BLOCK_D], o_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_full.index(stage), count=1)
    fence_async_shared()
    descriptors = (q_desc, k_desc, v_desc, o_desc)
    tiles = (q_tiles, k_tiles, v_tiles, o_tiles, q_full, k_full, v_full)
    results = (lse_ptr, part_ptr, part_lse_ptr)
    # step: Split the work between warps
    if C.CONSUMERS == 3:
        gl.warp_specialize(
            [
                (consumer, (descriptors, tiles, plan, sizes, results, scale_log2e, 0, C)),
                (consumer, (descriptors, tiles, plan, sizes, results, scale_log2e, 1, C)),
                (consumer, (descriptors, tiles, plan, sizes, results, scale_log2e, 2, C)),
                (producer, (descriptors, tiles, plan, sizes, C)),
            ],
            [4, 4, 1],
            [C.REGISTERS, C.REGISTERS, C.FEW],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (descriptors, tiles, plan, sizes, results, scale_log2e, 0, C)),
                (consumer, (descriptors, tiles, plan, sizes, results, scale_log2e, 1, C)),
                (producer, (descriptors, tiles, plan, sizes, C)),
            ],
            [4, 1],
            [C.REGISTERS, C.FEW],
        )
