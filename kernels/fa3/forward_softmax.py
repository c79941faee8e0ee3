# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportAssignmentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The online softmax of fa3's forward pass, on tiles of scores as wgmma leaves them in registers.

A thread holds of two rows, r and r + 8, the columns 8 a + 2 b and 8 a + 2 b + 1 for its own b and every a: as two
halves [rows, columns / 8, 4] two numbers that share a register once they are rounded stand at the same place.
"""

from __future__ import annotations

from kernels.fa3.forward_again import again_constraints, again_text, shrink_constraints, shrink_text
from kernels.hopper import gl, gluon


@gluon.jit
def hide(scores, first_hidden):
    """-inf from that key of this tile on which is hidden first from each row. `first_hidden` [rows]

    Compared with first_hidden - 2 b, a thread's columns are constants of the code and need no registers.
    """
    SCORES: gl.constexpr = scores.type.layout
    parts = gl.reshape(scores, [scores.shape[0], scores.shape[1] // 8, 4, 2])
    PARTS: gl.constexpr = parts.type.layout
    ROW_LANE: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, PARTS))
    A: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, PARTS)))
    C: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, PARTS)))
    a, c = gl.arange(0, scores.shape[1] // 8, A), gl.arange(0, 2, C)
    b = gl.arange(0, 4, gl.SliceLayout(0, ROW_LANE))
    limit = gl.convert_layout(first_hidden, gl.SliceLayout(1, ROW_LANE), assert_trivial=True)
    limit = limit[:, None] - 2 * b[None, :]
    seen = (8 * a)[None, :, None, None] + c[None, None, None, :] < limit[:, None, :, None]
    parts = gl.where(seen, parts, float("-inf"))
    return gl.convert_layout(gl.reshape(parts, scores.shape), SCORES, assert_trivial=True)


@gluon.jit
def soften(scores, running_max, scale_log2e):
    """-> weights, the new maximum, and the factor for what was summed before. All in powers of two."""
    new_max = gl.maximum(running_max, gl.max(scores, 1) * scale_log2e)
    # A row that has seen nothing yet stays at -inf, and -inf - -inf would be NaN.
    shift = gl.where(new_max == float("-inf"), 0.0, new_max)
    weights = gl.exp2(scores * scale_log2e - shift[:, None])
    return weights, new_max, gl.exp2(running_max - shift)


@gluon.jit
def guess(scores, running_max, scale_log2e, dtype: gl.constexpr):
    """Weights against the maximum of earlier tiles [rows, 4], which need not wait for this tile's.

    -> halves of the scores, weights `packed`, and what a thread's weights of a row add up to [rows, 4]
    """
    even, odd = halves(scores)
    shift = beside(running_max, even)
    weights_even = gl.exp2(even * scale_log2e - shift)
    weights_odd = gl.exp2(odd * scale_log2e - shift)
    packed = round_two(weights_even, weights_odd, dtype)
    return even, odd, packed, gl.sum(weights_even + weights_odd, 1)


@gluon.jit
def again_if_large(even, odd, guessed, state, scale_log2e, dtype: gl.constexpr):
    """Take a guess as it is, or, in a warp where weights came out too large, with the maximum of this tile.

    What all weights of a row are measured against is divided out at the end, so only size matters.
    guessed: packed weights and their sums; state: sums, maximum, sum of a row. -> the new state, packed weights
    """
    packed, tile_sum = guessed
    sums, running_max, row_sum = state
    COUNT: gl.constexpr = packed.shape[1] * 2  # of one thread
    packed, row_sum, running_max, factor, again = gl.inline_asm_elementwise(
        again_text(COUNT, str_of(dtype)), again_constraints(COUNT),
        [
            even, odd, packed, beside(row_sum, packed), beside(running_max, packed),
            beside(tile_sum, packed), scale_log2e,
        ],
        dtype=(gl.int32, gl.float32, gl.float32, gl.float32, gl.int32), is_pure=False, pack=COUNT,
    )  # fmt: skip
    LAYOUT: gl.constexpr = sums.type.layout
    first, second = halves(sums)
    HALF: gl.constexpr = sums.shape[1] // 4
    first, second = gl.inline_asm_elementwise(
        shrink_text(HALF), shrink_constraints(HALF),
        [first, second, beside(for_thread(factor), first), beside(for_thread(again), first)],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=HALF,
    )  # fmt: skip
    state = whole(first, second, LAYOUT), for_thread(running_max), for_thread(row_sum)
    return state, packed


# --- who holds what ------------------------------------------------------------------------------------------


@gluon.jit
def halves(tile):
    """[rows, columns] -> its even and its odd columns, each [rows, columns / 8, 4]"""
    return gl.split(gl.reshape(tile, [tile.shape[0], tile.shape[1] // 8, 4, 2]))


@gluon.jit
def whole(even, odd, LAYOUT: gl.constexpr):
    """The tile of two halves."""
    tile = gl.reshape(gl.join(even, odd), [even.shape[0], even.shape[1] * 8])
    return gl.convert_layout(tile, LAYOUT, assert_trivial=True)


@gluon.jit
def round_two(even, odd, dtype: gl.constexpr):
    """Halves rounded to 16 bits, two in a register of 32, the even one low. -> [rows, columns / 8, 4]

    In this form weights go from one step to the next: numbers of 16 bits would be taken apart and put together again.
    """
    return gl.inline_asm_elementwise(
        round_text(str_of(dtype)), "=r,f,f", [even, odd], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def unpacked(packed, dtype: gl.constexpr, LAYOUT: gl.constexpr):
    """Numbers of 16 bits [rows, columns], as wgmma takes them from registers."""
    even = packed.to(gl.int16).to(dtype, bitcast=True)
    odd = (packed >> 16).to(gl.int16).to(dtype, bitcast=True)
    return whole(even, odd, LAYOUT)


@gluon.jit
def lane_sums(weights):
    """The sum of a row, left in its four threads' parts: they are added once, at the end. -> [rows, 4]"""
    even, odd = halves(weights)
    return gl.sum(even + odd, 1)


@gluon.jit
def beside(vector, half):
    """A number for each row and thread [rows, 4], shaped to go with a half."""
    LAYOUT: gl.constexpr = gl.SliceLayout(1, half.type.layout)
    return gl.convert_layout(vector, LAYOUT, assert_trivial=True)[:, None, :]


@gluon.jit
def for_lanes(vector, lanes):
    """A number for each row, given to its four threads: [rows] -> [rows, 4], as `lanes` is held."""
    return like_rows_of(vector, lanes) + gl.zeros_like(lanes)


@gluon.jit
def like_rows_of(vector, other):
    """A number for each row, held as the rows of `other` are: by the same threads, so nothing moves."""
    LAYOUT: gl.constexpr = other.type.layout
    return gl.convert_layout(vector, gl.SliceLayout(1, LAYOUT), assert_trivial=True)[:, None]


@gluon.jit
def for_thread(half):
    """What stands at the first place of each row that a thread holds of a half. -> [rows, 4]"""
    return gl.reduce(half, 1, first_of)


@gluon.jit
def first_of(a, b):
    return a


@gluon.constexpr_function
def str_of(dtype):
    return str(dtype)


@gluon.constexpr_function
def round_text(dtype):
    return f"cvt.rn.{dtype.replace('fp', 'f')}x2.f32 $0, $2, $1;"
