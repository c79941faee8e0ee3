# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportAssignmentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""What one warpgroup of fa3's forward pass does with 64 queries: tile by tile, two products under one softmax.

`rings` are tiles of keys and values in shared memory, and for each the barriers that say which are full:
(key tiles, value tiles, keys full, values full).
"""

from __future__ import annotations

from kernels.fa3.forward_softmax import (
    again_if_large,
    for_lanes,
    guess,
    halves,
    hide,
    lane_sums,
    like_rows_of,
    round_two,
    soften,
    unpacked,
)
from kernels.fa3.schedule import CAUSAL, ROWS
from kernels.hopper import (
    FIRST_BARRIER,
    arrive_at,
    arrive_at_if,
    gl,
    gluon,
    mbarrier,
    parity,
    score_layout,
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


@gluon.jit
def start_scores(q, rings, index, FORM: gl.constexpr):
    """Wait for key tile `index` and begin Q K^T."""
    wait_for_keys(rings, index)
    tile = rings[0].index(index % STAGES).reshape([FORM.BLOCK_K, FORM.BLOCK_D]).permute([1, 0])
    empty = gl.full([ROWS, FORM.BLOCK_K], 0.0, gl.float32, score_layout(FORM.BLOCK_K))
    return warpgroup_mma(q, tile, empty, use_acc=False, is_async=True)


@gluon.jit
def start_sums(packed, sums, rings, index, FORM: gl.constexpr):
    """Begin sums + P V with value tile `index`, which is there."""
    tile = rings[1].index(index % STAGES).reshape([FORM.BLOCK_K, FORM.BLOCK_D])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, score_layout(FORM.BLOCK_D), 2)
    return warpgroup_mma(unpacked(packed, tile.dtype, OPERAND), tile, sums, is_async=True)


@gluon.jit
def wait_for_keys(rings, index):
    mbarrier.wait(rings[2].index(index % STAGES), parity(index, STAGES))


@gluon.jit
def wait_for_values(rings, index):
    mbarrier.wait(rings[3].index(index % STAGES), parity(index, STAGES))


@gluon.jit
def free(BARRIER: gl.constexpr, index, FORM: gl.constexpr):
    """Tell the producer that this consumer has read tile `index`."""
    arrive_at(BARRIER + index % STAGES, 128 * FORM.CONSUMERS + 32)


@gluon.jit
def pass_by(rings, index, count, FORM: gl.constexpr):
    """Let `count` tiles pass: a consumer without rows only keeps the rings turning."""
    for tile in range(index, index + count):
        wait_for_keys(rings, tile)
        free(KEYS_FREE, tile, FORM)
        wait_for_values(rings, tile)
        free(VALUES_FREE, tile, FORM)


@gluon.jit
def step(
    state, q, rings, index, scale_log2e, waits, follows, member, following, FORM: gl.constexpr
):
    """Score tile `index` and add what tile `index` - 1 weighs, then work out the weights of tile `index`.

    `waits`, `follows`: whether another consumer's turn comes before this one, and after it `following`'s.
    """
    sums, running_max, row_sum, packed = state
    # step: Take turns
    wait_at_if(waits, TURN + member, 256)
    # step: Score the next tile early
    scores = start_scores(q, rings, index, FORM)
    if not FORM.EARLY:
        wait_for_values(rings, index - 1)
    sums = start_sums(packed, sums, rings, index - 1, FORM)
    arrive_at_if(follows, TURN + following, 256)
    if FORM.EARLY:
        scores = warpgroup_mma_wait(1, deps=[scores])
    else:
        scores, sums = warpgroup_mma_wait(0, deps=[scores, sums])
        free(VALUES_FREE, index - 1, FORM)
    free(KEYS_FREE, index, FORM)
    # step: Softmax while the matrix units work
    # EARLY: this consumer's own product too; else those of the others.
    dtype: gl.constexpr = rings[0].dtype
    even, odd, weights, tile_sum = guess(scores, running_max, scale_log2e, dtype)
    if FORM.EARLY:
        # A wait here, for the next values, keeps the compiler from waiting for the product any earlier.
        wait_for_values(rings, index)
        sums, packed = warpgroup_mma_wait(0, deps=[sums, packed])
        free(VALUES_FREE, index - 1, FORM)
    state, packed = again_if_large(
        even, odd, (weights, tile_sum), (sums, running_max, row_sum), scale_log2e, dtype
    )
    return state[0], state[1], state[2], packed


@gluon.jit
def look_at(q, rings, index, first_hidden, sums_so_far, scale_log2e, FORM: gl.constexpr):
    """Score tile `index`, which may be hidden in part. -> maximum, sum of a row, packed weights, factor for the sums"""
    running_max, row_sum = sums_so_far
    scores = warpgroup_mma_wait(0, deps=[start_scores(q, rings, index, FORM)])
    free(KEYS_FREE, index, FORM)
    weights, running_max, factor = soften(hide(scores, first_hidden), running_max, scale_log2e)
    row_sum = row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)
    even, odd = halves(weights)
    return running_max, row_sum, round_two(even, odd, rings[0].dtype), factor


@gluon.jit
def add_values(packed, sums, rings, index, FORM: gl.constexpr):
    """sums + P V with value tile `index`."""
    wait_for_values(rings, index)
    sums = warpgroup_mma_wait(0, deps=[start_sums(packed, sums, rings, index, FORM)])
    free(VALUES_FREE, index, FORM)
    return sums


@gluon.jit
def attend(
    q, rings, index, piece, member, queries, keys, scale_log2e, q_free, FORM: gl.constexpr
):  # fmt: skip
    """What the 64 queries of this consumer get from the key tiles of a piece. -> sums, maximum, sum of a row

    `index`: of the piece's first tile in the rings, which is its last tile of keys.
    """
    _head, block, active, first, end, _slot = piece
    SCORES: gl.constexpr = score_layout(FORM.BLOCK_K)
    running_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
    first_hidden = gl.full([ROWS], keys, gl.int32, gl.SliceLayout(1, SCORES))
    sums = gl.full([ROWS, FORM.BLOCK_D], 0.0, gl.float32, score_layout(FORM.BLOCK_D))
    row_sum = lane_sums(gl.full([ROWS, FORM.BLOCK_K], 0.0, gl.float32, SCORES))
    place = end - 1
    shared_end = place  # before it, all consumers score the same tiles, in turns
    if FORM.ORDER == CAUSAL:
        # Of this consumer's tiles, those from `place` on reach past the diagonal; `own_end` is hidden altogether.
        offset = 1 + keys - queries
        shared_end = gl.minimum(place, gl.maximum(first, (block * ROWS + offset) // FORM.BLOCK_K))
        query = (block + member) * ROWS
        own_end = gl.maximum(first + 1, gl.cdiv(query + ROWS - 1 + offset, FORM.BLOCK_K))
        own_end = gl.minimum(own_end, end)
        place = gl.minimum(own_end - 1, gl.maximum(first, (query + offset) // FORM.BLOCK_K))
        pass_by(rings, index, end - own_end, FORM)
        index += end - own_end
        query += gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
        first_hidden = gl.minimum(keys, query + offset)
        for past in range(own_end - 1, place, -1):
            hidden = first_hidden - past * FORM.BLOCK_K
            running_max, row_sum, packed, factor = look_at(
                q, rings, index, hidden, (running_max, row_sum), scale_log2e, FORM
            )
            sums *= like_rows_of(factor, sums)
            sums = add_values(packed, sums, rings, index, FORM)
            index += 1
    hidden = first_hidden - place * FORM.BLOCK_K
    running_max, row_sum, packed, factor = look_at(
        q, rings, index, hidden, (running_max, row_sum), scale_log2e, FORM
    )
    if FORM.ORDER == CAUSAL:
        sums *= like_rows_of(factor, sums)
    if FORM.EARLY:
        wait_for_values(rings, index)
    state = sums, for_lanes(running_max, row_sum), row_sum, packed

    # In each step the consumers with rows issue their products one after the other.
    following = gl.where(member + 1 < active, member + 1, 0)
    for past in range(place - 1, first - 1, -1):
        index += 1
        waits = (past < shared_end) & ((member > 0) | ((past < shared_end - 1) & (active > 1)))
        follows = (past < shared_end) & (active > 1) & ((following > 0) | (past > first))
        state = step(state, q, rings, index, scale_log2e, waits, follows, member, following, FORM)
    mbarrier.arrive(q_free)
    sums, running_max, row_sum, packed = state
    running_max = gl.convert_layout(
        gl.max(running_max, 1), gl.SliceLayout(1, SCORES), assert_trivial=True
    )
    return add_values(packed, sums, rings, index, FORM), running_max, gl.sum(row_sum, 1)
