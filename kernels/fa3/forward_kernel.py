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
"""Tiles of a kind that are in shared memory at once."""

# Named barriers. Consumers give each other turns at the first three; the producer waits at the others.
TURN = FIRST_BARRIER
KEYS_FREE = gl.constexpr(FIRST_BARRIER.value + 3)
VALUES_FREE = gl.constexpr(FIRST_BARRIER.value + 5)

RISE = gl.constexpr(8.0)
"""Powers of two that the maximum may rise before the sums are rescaled."""


@gluon.jit
def producer(descriptors, tiles, plan, sizes, C: gl.constexpr):
    """Bring the queries of each piece, then its key and value tiles from the last to the first."""
    q_desc, k_desc, v_desc = descriptors[0], descriptors[1], descriptors[2]
    q_tiles, k_tiles, v_tiles, q_full, q_free, k_full, v_full = tiles
    heads, group, queries, keys = sizes
    CONSUMERS: gl.constexpr = C.CONSUMERS
    THREADS: gl.constexpr = 128 * CONSUMERS + 32
    program = gl.program_id(0)
    turns, at = turns_of(program, plan, keys, CONSUMERS, C.BLOCK_K, C.ORDER)
    index = 0  # of the tile, counted over all pieces
    for turn in range(turns):
        piece, at = piece_at(turn, at, program, plan, queries, keys, CONSUMERS, C.BLOCK_K, C.ORDER)
        batch_head, block, first, end = piece[0], piece[1], piece[3], piece[4]
        batch, head = batch_head // heads, batch_head % heads
        kv_head = head // group
        place = turn % STAGES
        mbarrier.wait(q_free.index(place), parity(turn, STAGES) ^ 1, pred=turn >= STAGES)
        bar = q_full.index(place)
        mbarrier.expect(bar, CONSUMERS * ROWS * C.BLOCK_D * 2)
        for member in gl.static_range(CONSUMERS):
            tma.async_copy_global_to_shared(
                q_desc,
                [batch, head, (block + member) * ROWS, 0],
                bar,
                q_tiles.index(place * CONSUMERS + member),
            )
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
                last = index - 1 - gl.where(step < end - first, 1, 0)
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
    """Let `count` tiles pass, of which the first was scored: who has no rows only keeps the rings turning."""
    for tile in range(index, index + count):
        stage = tile % STAGES
        if tile > index:
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
def row_max(scores):
    """The largest of each row. A thread's 32 numbers of a row in steps that do not wait for each other."""
    S: gl.constexpr = scores.type.layout
    parts = gl.reshape(scores, [scores.shape[0], scores.shape[1] // 32, 4, 4, 2])
    most = gl.max(gl.max(gl.max(gl.max(parts, 4), 2), 1), 1)
    return gl.convert_layout(most, gl.SliceLayout(1, S), assert_trivial=True)


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
    new_max = gl.maximum(running_max, row_max(scores) * scale_log2e)
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
def pack(weights, dtype: gl.constexpr, C: gl.constexpr):
    """Weights as wgmma takes them from registers: 16 bits each, in the same threads."""
    P: gl.constexpr = gl.DotOperandLayout(0, score_layout(C.BLOCK_D), 2)
    return gl.convert_layout(weights.to(dtype), P, assert_trivial=True)


@gluon.jit
def start_scores(q, k, index, C: gl.constexpr):
    """Begin Q K^T for tile `index`."""
    S: gl.constexpr = score_layout(C.BLOCK_K)
    tile = k.index(index % STAGES).reshape([C.BLOCK_K, C.BLOCK_D]).permute([1, 0])
    empty = gl.full([ROWS, C.BLOCK_K], 0.0, gl.float32, S)
    return warpgroup_mma(q, tile, empty, use_acc=False, is_async=True)


@gluon.jit
def start_sums(packed, v, index, sums, C: gl.constexpr):
    """Begin sums + P V for tile `index`."""
    tile = v.index(index % STAGES).reshape([C.BLOCK_K, C.BLOCK_D])
    return warpgroup_mma(packed, tile, sums, is_async=True)


@gluon.jit
def arrive_after(sums, barrier, THREADS: gl.constexpr):
    """`arrive_at` once these sums are known, which are never below 0."""
    gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.lt.f32 p, $2, 0f00000000; setp.lt.or.f32 p, $3, 0f00000000, p; "
        "@!p bar.arrive $4, $6; mov.u32 $0, 0; mov.u32 $1, 0; }",
        "=r,=r,f,f,r,r,n,n",
        [sums, barrier, THREADS],
        dtype=gl.int32, is_pure=False, pack=2,
    )  # fmt: skip


@gluon.jit
def step(
    state, q, k, v, k_full, v_full, index, scale_log2e, turn_taken, handed_over, member, following,
    C: gl.constexpr,
):  # fmt: skip
    """Score tile `index`, and while its weights are worked out add what tile `index` - 1 weighs."""
    sums, running_max, row_sum, packed = state
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    stage = index % STAGES
    last = (index - 1) % STAGES
    mbarrier.wait(k_full.index(stage), parity(index, STAGES))
    if not C.EARLY:
        mbarrier.wait(v_full.index(last), parity(index - 1, STAGES))
    # step: Take turns
    if C.TURNS:
        wait_at_if(turn_taken, TURN + member, 256)
    # step: Score the next tile early
    scores = start_scores(q, k, index, C)
    sums = start_sums(packed, v, index - 1, sums, C)
    if C.TURNS:
        arrive_at_if(handed_over, TURN + following, 256)
    scores = warpgroup_mma_wait(1, deps=[scores])
    if not C.LATE:
        arrive_at(KEYS_FREE + stage, THREADS)
    # step: Softmax while the matrix units work
    weights, running_max, factor = soften(scores, running_max, scale_log2e, False, C.LAZY)
    row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
    if C.PIN:
        packed = pinned_pack(weights, k, C)
    if C.LATE:
        arrive_after(row_sum, KEYS_FREE + stage, THREADS)
    if C.EARLY:
        # Waiting here for the next values keeps the compiler from waiting for the product any earlier.
        mbarrier.wait(v_full.index(stage), parity(index, STAGES))
    sums = warpgroup_mma_wait(0, deps=[sums])
    arrive_at(VALUES_FREE + last, THREADS)
    sums = rescaled(sums, like_rows_of(factor, sums), C.LAZY)
    if not C.PIN:
        packed = pack(weights, k.dtype, C)
    return sums, running_max, row_sum, packed


@gluon.constexpr_function
def pack_text(dtype):
    return f"cvt.rn.{'bf16x2' if dtype == gl.bfloat16 else 'f16x2'}.f32 $0, $2, $1;"


@gluon.jit
def pinned_pack(weights, tiles, C: gl.constexpr):
    """`pack`, which the compiler may not move behind what follows."""
    P: gl.constexpr = gl.DotOperandLayout(0, score_layout(C.BLOCK_D), 2)
    packed = gl.inline_asm_elementwise(
        pack_text(tiles.dtype), "=r,f,f", [weights], dtype=tiles.dtype, is_pure=False, pack=2
    )
    return gl.convert_layout(packed, P, assert_trivial=True)


@gluon.jit
def attend(
    scores, q, k, v, k_full, v_full, q_free, turn, index, first, end, row, seen, active, member, queries,
    keys, scale_log2e, C: gl.constexpr,
):  # fmt: skip
    """What 64 queries from `row` on get from key tiles first ... end - 1, of which `scores` are the last's.

    -> all but the last step: sums, maximum, sum of a row, and what the first tile weighs
    `seen`: how many keys the first row of this piece sees, and so all of its rows.
    """
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    S: gl.constexpr = score_layout(C.BLOCK_K)
    sums = gl.full([ROWS, C.BLOCK_D], 0.0, gl.float32, score_layout(C.BLOCK_D))
    running_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S))
    first_hidden = gl.full([ROWS], keys, gl.int32, gl.SliceLayout(1, S))
    place = end - 1
    if C.ORDER == CAUSAL:
        query = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
        first_hidden = gl.minimum(keys, query + 1 + keys - queries)
        place = gl.minimum(place, gl.maximum(first, seen // C.BLOCK_K))
        row_sum = lane_sums(gl.full([ROWS, C.BLOCK_K], 0.0, gl.float32, S))
        for past in range(end - 1, place, -1):
            weights, running_max, factor = soften(
                hide(scores, first_hidden - past * C.BLOCK_K), running_max, scale_log2e, True, False
            )
            row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
            packed = pack(weights, k.dtype, C)
            sums = sums * like_rows_of(factor, sums)
            mbarrier.wait(v_full.index(index % STAGES), parity(index, STAGES))
            mbarrier.wait(k_full.index((index + 1) % STAGES), parity(index + 1, STAGES))
            scores = start_scores(q, k, index + 1, C)
            sums = start_sums(packed, v, index, sums, C)
            scores = warpgroup_mma_wait(1, deps=[scores])
            arrive_at(KEYS_FREE + (index + 1) % STAGES, THREADS)
            sums = warpgroup_mma_wait(0, deps=[sums])
            arrive_at(VALUES_FREE + index % STAGES, THREADS)
            index += 1
    weights, running_max, factor = soften(
        hide(scores, first_hidden - place * C.BLOCK_K), running_max, scale_log2e, True, False
    )
    packed = pack(weights, k.dtype, C)
    if C.ORDER == CAUSAL:
        sums = sums * like_rows_of(factor, sums)
        row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
    else:
        row_sum = lane_sums(weights)
    if C.EARLY:
        mbarrier.wait(v_full.index(index % STAGES), parity(index, STAGES))
    state = sums, running_max, row_sum, packed
    # The output of the piece before has left the place of its queries.
    tma.store_wait(0)
    mbarrier.arrive(q_free.index((turn + 1) % STAGES), pred=turn > 0)

    together = active > 1
    following = gl.where(member + 1 < active, member + 1, 0)
    arrive_at_if(together & (following == 0) & (place > first), TURN, 256)
    for past in range(place - 1, first - 1, -1):
        index += 1
        state = step(
            state, q, k, v, k_full, v_full, index, scale_log2e,
            together, together & ((following > 0) | (past > first)), member, following, C,
        )  # fmt: skip
    return state


@gluon.jit
def consumer(descriptors, tiles, plan, sizes, results, scale_log2e, member, C: gl.constexpr):
    """Attend for one block of 64 queries of each piece, and write its output and log-sum-exp."""
    q_tiles, k_tiles, v_tiles, q_full, q_free, k_full, v_full = tiles
    heads, queries, keys = sizes[0], sizes[2], sizes[3]
    THREADS: gl.constexpr = 128 * C.CONSUMERS + 32
    program = gl.program_id(0)
    turns, at = turns_of(program, plan, keys, C.CONSUMERS, C.BLOCK_K, C.ORDER)
    index = 0
    mbarrier.wait(q_full.index(0), 0, pred=turns > 0)
    mbarrier.wait(k_full.index(0), 0, pred=turns > 0)
    q = q_tiles.index(member).reshape([ROWS, C.BLOCK_D])
    scores = warpgroup_mma_wait(0, deps=[start_scores(q, k_tiles, 0, C)])
    arrive_at_if(turns > 0, KEYS_FREE, THREADS)
    for turn in range(turns):
        piece, at = piece_at(
            turn, at, program, plan, queries, keys, C.CONSUMERS, C.BLOCK_K, C.ORDER
        )
        batch_head, block, active, first, end, slot = piece
        # The first tile of the next piece is scored along with the last product of this one.
        last = index + end - first - 1
        index = last + 1
        more = turn + 1 < turns
        next_q = q_tiles.index((turn + 1) % STAGES * C.CONSUMERS + member)
        next_q = next_q.reshape([ROWS, C.BLOCK_D])
        if member < active:
            row = (block + member) * ROWS
            buffer = q_tiles.index(turn % STAGES * C.CONSUMERS + member)
            sums, running_max, row_sum, packed = attend(
                scores, buffer.reshape([ROWS, C.BLOCK_D]), k_tiles, v_tiles, k_full, v_full,
                q_free, turn, last + 1 + first - end, first, end, row, block * ROWS + 1 + keys - queries, active,
                member, queries, keys, scale_log2e, C,
            )  # fmt: skip
            mbarrier.wait(v_full.index(last % STAGES), parity(last, STAGES))
            mbarrier.wait(q_full.index((turn + 1) % STAGES), parity(turn + 1, STAGES), pred=more)
            mbarrier.wait(k_full.index(index % STAGES), parity(index, STAGES), pred=more)
            scores = start_scores(next_q, k_tiles, index, C)
            sums = start_sums(packed, v_tiles, last, sums, C)
            scores = warpgroup_mma_wait(1, deps=[scores])
            arrive_at_if(more, KEYS_FREE + index % STAGES, THREADS)
            sums = warpgroup_mma_wait(0, deps=[sums])
            arrive_at(VALUES_FREE + last % STAGES, THREADS)
            finish(
                sums, running_max, gl.sum(row_sum, 1), descriptors[3], buffer, results, batch_head,
                heads, row, queries, slot, member, C,
            )  # fmt: skip
        else:
            tma.store_wait(0)
            mbarrier.arrive(q_free.index((turn + 1) % STAGES), pred=turn > 0)
            pass_by(k_full, v_full, last + 1 + first - end, end - first, THREADS)
            mbarrier.wait(q_full.index((turn + 1) % STAGES), parity(turn + 1, STAGES), pred=more)
            mbarrier.wait(k_full.index(index % STAGES), parity(index, STAGES), pred=more)
            scores = warpgroup_mma_wait(0, deps=[start_scores(next_q, k_tiles, index, C)])
            arrive_at_if(more, KEYS_FREE + index % STAGES, THREADS)
    tma.store_wait(0)


@gluon.jit
def finish(
    sums, running_max, row_sum, o_desc, buffer, results, batch_head, heads, row, queries, slot, member,
    C: gl.constexpr,
):  # fmt: skip
    """Divide once, and write output and log-sum-exp, or a part of them."""
    S: gl.constexpr = score_layout(C.BLOCK_K)
    row_sum = gl.convert_layout(row_sum, gl.SliceLayout(1, S), assert_trivial=True)
    # A row that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
    saw_nothing = row_sum == 0.0
    row_sum = gl.where(saw_nothing, 1.0, row_sum)
    log2_sum = gl.where(saw_nothing, float("-inf"), running_max + gl.log2(row_sum))
    sums = sums * like_rows_of(1.0 / row_sum, sums)
    if slot >= 0:
        save_part(sums, log2_sum, results, slot * C.CONSUMERS + member, S, score_layout(C.BLOCK_D))
    else:
        # Where these queries lay: nobody reads them any more.
        buffer.reshape([ROWS, C.BLOCK_D]).store(sums.to(o_desc.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(
            o_desc, [batch_head // heads, batch_head % heads, row, 0], buffer
        )
        save_log_sum_exp(log2_sum, results[0], batch_head, row, queries, S)


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
    do_not_specialize=[
        "batch_heads", "blocks", "whole", "share", "section", "heads", "group", "queries", "keys",
        "scale_log2e",
    ],
    do_not_specialize_on_alignment=["lse_ptr", "part_ptr", "part_lse_ptr"],
)  # fmt: skip
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, part_ptr, part_lse_ptr, batch_heads, blocks, whole, share,
    section, heads, group, queries, keys, scale_log2e, C: gl.constexpr,
):  # fmt: skip
    """One program for each multiprocessor, which stays there until all queries are done."""
    plan = (batch_heads, blocks, whole, share, section)
    sizes = (heads, group, queries, keys)
    dtype: gl.constexpr = q_desc.dtype
    q_tiles = gl.allocate_shared_memory(
        dtype, [STAGES * C.CONSUMERS, 1, 1, ROWS, C.BLOCK_D], q_desc.layout
    )
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, C.BLOCK_K, C.BLOCK_D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, C.BLOCK_K, C.BLOCK_D], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(q_full.index(stage), count=1)
        mbarrier.init(q_free.index(stage), count=C.CONSUMERS)
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_full.index(stage), count=1)
    fence_async_shared()
    descriptors = (q_desc, k_desc, v_desc, o_desc)
    tiles = (q_tiles, k_tiles, v_tiles, q_full, q_free, k_full, v_full)
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
