# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportAssignmentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The online softmax of fa3's forward pass, on tiles of scores as wgmma leaves them in registers."""

from __future__ import annotations

from kernels.hopper import gl, gluon

RISE = gl.constexpr(8.0)
"""Powers of two by which the maximum may rise before the sums are rescaled."""


@gluon.jit
def hide(scores, first_hidden):
    """-inf from that key of this tile on which is hidden first from each row. `first_hidden` [rows]

    A thread's columns are 8 a + 2 b + c, where only b differs between the four threads of a row: compared
    with first_hidden - 2 b, the others are constants of the code and need no registers.
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


@gluon.jit
def lane_sums(weights):
    """The sum of a row, left in its four threads' parts: they are added once, at the end. -> [rows, 4]"""
    parts = gl.reshape(weights, [weights.shape[0], weights.shape[1] // 8, 4, 2])
    return gl.sum(gl.sum(parts, 3), 1)


@gluon.jit
def like_rows_of(vector, other):
    """A number for each row, held as the rows of `other` are: by the same threads, so nothing moves."""
    LAYOUT: gl.constexpr = other.type.layout
    return gl.convert_layout(vector, gl.SliceLayout(1, LAYOUT), assert_trivial=True)[:, None]


@gluon.jit
def add_row_sums(row_sum, factor, weights):
    """row_sum * factor + what this tile weighs."""
    return row_sum * like_rows_of(factor, row_sum) + lane_sums(weights)


@gluon.jit
def rescaled(sums, factor, LAZY: gl.constexpr):
    """sums * factor; LAZY: skipped where no row of the warp asks for it, which is nearly always."""
    factor = like_rows_of(factor, sums)
    if not LAZY:
        return sums * factor
    COUNT: gl.constexpr = sums.shape[1] // 2  # of one thread
    return gl.inline_asm_elementwise(
        multiply_text(COUNT), multiply_constraints(COUNT), [sums, factor],
        dtype=gl.float32, is_pure=True, pack=COUNT,
    )  # fmt: skip


@gluon.constexpr_function
def multiply_text(count):
    """Multiply `count` numbers in place, unless both rows of this thread have the factor 1.

    wgmma's order is two numbers of the first row, two of the second, and so on.
    """
    products = " ".join(f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count))
    one = "0f3F800000"
    return (
        f"{{ .reg .pred p; setp.ne.f32 p, ${2 * count}, {one}; "
        f"setp.ne.or.f32 p, ${2 * count + 2}, {one}, p; @!p bra SAME; {products} SAME: }}"
    )


@gluon.constexpr_function
def multiply_constraints(count):
    """`count` results, the same registers as numbers, and `count` factors."""
    return ",".join(["=f"] * count + [str(i) for i in range(count)] + ["f"] * count)
