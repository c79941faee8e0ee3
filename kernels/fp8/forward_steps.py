# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportAssignmentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportReturnType=false
"""A consumer's way over the key tiles, in FP8: score the next one while the softmax of this one runs."""

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
from kernels.fp8.weights_in_bytes import pack_bytes, soften_in_bytes
from kernels.hopper import (
    FIRST_BARRIER,
    arrive_at,
    gl,
    gluon,
    mbarrier,
    parity,
    warpgroup_mma,
    warpgroup_mma_wait,
)

FREE = FIRST_BARRIER
"""Named barriers, one for each stage: there the producer waits until all consumers have used it up."""


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
def soften_tile(scores, shift, scale, MASKED: gl.constexpr, C: gl.constexpr):
    """`soften`, in the form of `soften_in_bytes`: weights, twice, their sums, new shift, factor."""
    weights, new_shift, factor = soften(scores, shift, scale, MASKED, C.LAZY)
    return weights, weights, lane_sums(weights), new_shift, factor


@gluon.jit
def step(
    state, q, tiles, index, scale, first_hidden, MASKED: gl.constexpr, C: gl.constexpr
):  # fmt: skip
    """Score the keys of step `index`, and while their weights are worked out add its values."""
    _, k_tiles, v_tiles, _, _, full = tiles
    sums, product, shift, row_sum, packed, factor, factor_before = state
    stage = index % C.STAGES
    if not C.EARLY:
        mbarrier.wait(full.index(stage), parity(index, C.STAGES))
    scores = score(q, k_tiles, stage, C)
    sums = settle(sums, product, factor, factor_before, C)
    product = weigh(packed, v_tiles, stage, sums, C)
    scores = warpgroup_mma_wait(1, deps=[scores])
    if MASKED:
        scores = hide(scores, first_hidden)
    # Of a tile that is hidden in part -inf must become 0, and rows may be empty: there exponentials are taken.
    BYTES: gl.constexpr = C.BYTES and not MASKED
    one, other, sum_of_tile, shift, new_factor = (
        soften_in_bytes(scores, shift, scale)
        if BYTES
        else soften_tile(scores, shift, scale, MASKED, C)
    )
    sum_of_tile = gl.convert_layout(sum_of_tile, row_sum.type.layout, assert_trivial=True)
    row_sum = row_sum * like_rows_of(new_factor, row_sum) + sum_of_tile
    if C.EARLY:
        # Waiting here for the next step keeps the compiler from waiting for the product any earlier.
        mbarrier.wait(full.index((index + 1) % C.STAGES), parity(index + 1, C.STAGES))
    product, packed = warpgroup_mma_wait(0, deps=[product, packed])
    arrive_at(FREE + stage, 128 * C.CONSUMERS + 32)
    # Packed only now, P can go where the last one was: sooner, its registers would have to be moved (and the
    # compiler then puts one product behind the other, C7513).
    packed = pack_bytes(one, other) if BYTES else pack(one)
    return sums, product, shift, row_sum, packed, new_factor, factor


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
    weights, shift, factor = soften(scores, shift, scale, True, C.LAZY)
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
    q, q_free, tiles, index, end, row, seen, k_scales, scale, queries, keys, C: gl.constexpr
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
            state = step(state, q, tiles, index, block_scale, hidden, True, C)
    for place in range(unmasked - 1, -1, -1):
        index += 1
        block_scale = gl.load(k_scales + place) * scale
        state = step(state, q, tiles, index, block_scale, first_hidden, False, C)
    mbarrier.arrive(q_free)
    return end_with(state, tiles, index + 1, C)
