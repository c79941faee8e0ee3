# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportAssignmentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportReturnType=false
"""From scores to P in FP8, in registers: maxima, exponentials, and words as the next product reads them."""

from __future__ import annotations

from kernels.hopper import gl, gluon

ROWS = gl.constexpr(64)
"""Queries of one consumer: the rows of one wgmma."""

TOP = gl.constexpr(8.0)
"""P is held times 2^TOP: its largest number is near e4m3's 448, and small ones keep their bits."""

LAZY_TOP = gl.constexpr(8.0)
RISE = gl.constexpr(0.75)
"""With LAZY the maximum may rise by so many powers of two before it is taken: LAZY_TOP + RISE < log2(448)."""


@gluon.constexpr_function
def product_layout(width):
    """How wgmma holds a [64, width] product of FP8 numbers."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, width, 32])


@gluon.constexpr_function
def packed_layout(width):
    """[64, width // 4, 4], the last in one register: how wgmma reads an FP8 operand from registers."""
    registers = [[0, 0, 1], [0, 0, 2], [8, 0, 0]]
    key = 4
    while key < width // 4:
        registers.append([0, key, 0])
        key *= 2
    lanes = [[0, 1, 0], [0, 2, 0], [1, 0, 0], [2, 0, 0], [4, 0, 0]]
    warps = [[16, 0, 0], [32, 0, 0]]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [64, width // 4, 4])


@gluon.jit
def like_rows_of(vector, other):
    """A number for each row, held as the rows of `other` are: by the same threads, so nothing moves. -> [64, 1]"""
    LAYOUT: gl.constexpr = other.type.layout
    return gl.convert_layout(vector, gl.SliceLayout(1, LAYOUT), assert_trivial=True)[:, None]


@gluon.jit
def lane_sums(weights):
    """The sum of a row, left in its four threads' parts: they are added once, at the end. -> [64, 4]"""
    parts = gl.reshape(weights, [ROWS, weights.shape[1] // 8, 4, 2])
    return gl.sum(gl.sum(parts, 3), 1)


@gluon.jit
def hide(scores, first_hidden):
    """-inf from that key of this tile on which is hidden first from each row. `first_hidden` [64]

    A thread's columns are 8 a + 2 b + c, where only b differs between the four threads of a row: compared with
    first_hidden - 2 b, the others are constants of the code and take no registers.
    """
    S: gl.constexpr = scores.type.layout
    width: gl.constexpr = scores.shape[1]
    parts = gl.reshape(scores, [ROWS, width // 8, 4, 2])
    L: gl.constexpr = parts.type.layout
    LANES: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, L))  # [64, 4]
    eight = gl.arange(0, width // 8, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, L))))
    lane = gl.arange(0, 4, gl.SliceLayout(0, LANES))
    one = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L))))
    limit = gl.convert_layout(first_hidden, gl.SliceLayout(1, LANES), assert_trivial=True)
    limit = limit[:, None] - 2 * lane[None, :]
    column = (8 * eight)[None, :, None, None] + one[None, None, None, :]
    parts = gl.where(column < limit[:, None, :, None], parts, float("-inf"))
    return gl.convert_layout(gl.reshape(parts, [ROWS, width]), S, assert_trivial=True)


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
    """sums * factor; LAZY: skipped where no row of the warp asks for it, which is nearly always."""
    if not LAZY:
        return sums * factor
    COUNT: gl.constexpr = sums.shape[1] // 2  # of one thread
    return gl.inline_asm_elementwise(
        multiply_text(COUNT), multiply_constraints(COUNT), [sums, factor],
        dtype=gl.float32, is_pure=True, pack=COUNT,
    )  # fmt: skip


@gluon.jit
def row_maxima(scores):
    """The largest of each row; a thread goes through its part in four chains, which need not wait for each other."""
    S: gl.constexpr = scores.type.layout
    parts = gl.reshape(scores, [ROWS, 4, scores.shape[1] // 32, 4, 2])
    lanes = gl.max(gl.max(gl.max(parts, 2), 3), 1)
    return gl.convert_layout(gl.max(lanes, 1), gl.SliceLayout(1, S), assert_trivial=True)


@gluon.jit
def risen(largest, shift):
    """The shift, or the one that fits the largest exponent of a tile where that is more than RISE above."""
    wanted = largest - LAZY_TOP
    return gl.where(wanted - shift > RISE, wanted, shift)


@gluon.jit
def exact_exp2(scores, scale, shift):
    """2^(scores * scale - shift), by the special function unit."""
    return gl.exp2(scores * scale - like_rows_of(shift, scores))


@gluon.jit
def soften(scores, shift, scale, MASKED: gl.constexpr, LAZY: gl.constexpr):
    """-> weights 2^(scores * scale - shift), the new shift, and the factor for what was summed before.

    The shift is the running maximum, times scale, less TOP. LAZY: one that would rise little stays, which changes no
    result: it is divided out at the end.
    """
    if LAZY:
        new_shift = risen(row_maxima(scores) * scale, shift)
    else:
        new_shift = gl.maximum(shift, row_maxima(scores) * scale - TOP)
    safe = new_shift
    if MASKED:
        # A row that has seen nothing yet stays at -inf, and -inf - -inf would be NaN.
        safe = gl.where(new_shift == float("-inf"), 0.0, new_shift)
    return exact_exp2(scores, scale, safe), new_shift, gl.exp2(shift - safe)


@gluon.jit
def by_places(scores):
    """Columns 2q, 2q+1, 2q+8 and 2q+9 of each 16, which one thread holds. -> four times [64, width // 4]"""
    width: gl.constexpr = scores.shape[1]
    pairs = gl.reshape(scores, [ROWS, width // 16, 2, 4, 2]).permute([0, 1, 3, 2, 4])
    even, odd = gl.split(gl.reshape(pairs, [ROWS, width // 4, 2, 2]))
    even_low, even_high = gl.split(even)
    odd_low, odd_high = gl.split(odd)
    return even_low, odd_low, even_high, odd_high


@gluon.jit
def as_packed(words):
    """Words of P, each of four keys, in the layout of the next product's operand; nothing moves."""
    LAYOUT: gl.constexpr = gl.SliceLayout(2, packed_layout(4 * words.shape[1]))
    return gl.convert_layout(words, LAYOUT, assert_trivial=True)


@gluon.jit
def pack(weights):
    """P as it stands in the accumulator -> e4m3, four numbers a word, as the next product reads them.

    A thread holds columns 2q, 2q+1, 2q+8, 2q+9 of each 16, and the FP8 operand wants 4q ... 4q+3. So the columns
    are renamed, which costs nothing, and V^T was stored with its keys in that order. [64, width // 4]
    """
    even_low, odd_low, even_high, odd_high = by_places(weights)
    # By the compiler's own conversion the bytes would travel one by one round the loop.
    words = gl.inline_asm_elementwise(
        "{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, $2, $1; "
        "cvt.rn.satfinite.e4m3x2.f32 high, $4, $3; mov.b32 $0, {low, high}; }", "=r,r,r,r,r",
        [even_low, odd_low, even_high, odd_high], dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip
    return as_packed(words)


@gluon.jit
def as_operand(words, O: gl.constexpr):
    """Words of four FP8 numbers -> the same registers as an operand [64, width] of a product in layout O."""
    width: gl.constexpr = 4 * words.shape[1]
    LAYOUT: gl.constexpr = packed_layout(width)
    like = gl.full([ROWS, width // 4, 4], 0, gl.int32, LAYOUT)
    four, _ = gl.broadcast(words[:, :, None], like)
    numbers = gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r,r,r,r", [four], dtype=gl.float8e4nv, is_pure=True, pack=4
    )
    P: gl.constexpr = gl.DotOperandLayout(0, O, 4)
    return gl.convert_layout(gl.reshape(numbers, [ROWS, width]), P, assert_trivial=True)
