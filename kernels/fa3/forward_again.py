"""PTX of fa3's forward pass for a tile whose weights came out too large: what no warp does in most steps.

As text, because a branch that the warps of a group take each for itself is one that Gluon has not.
`count` numbers of a thread are numbered as in a half of `forward_softmax`: row r, row r + 8, row r, ...
"""

from __future__ import annotations

import struct

from kernels.hopper import gluon

MOST = 2.0**13
"""What a thread's weights of one row and tile may add up to: the largest number of float16 is 2^16."""

MOST_BITS = f"0f{struct.pack('>f', MOST).hex().upper()}"
"""The same as PTX writes it."""


@gluon.constexpr_function
def again_constraints(count):
    """packed, row sum, maximum, factor, again <- even and odd scores, the same three before, tile sum, scale"""
    results = ["=r"] * count + ["=f"] * (2 * count)
    others = ["=&f"] * count + ["=&r"] * count  # &: written while operands are still to be read
    same = [str(i) for i in range(3 * count)]
    return ",".join([*results, *others] + ["f"] * (2 * count) + same + ["f"] * (2 * count))


@gluon.constexpr_function
def again_text(count, dtype):
    """Where a tile's sums are too large in a thread, take maxima, weights and sums of the warp anew; add the sums.

    A row whose sums are small keeps its maximum and gets the same weights again: no row depends on another.
    `again` is 1 where that was done, and what was added up before has to be multiplied by `factor`.
    """

    def operand(place):
        return lambda i: f"${place * count + i}"

    packed, row_sum, maximum, factor, again, even, odd = map(operand, range(7))
    tile_sum, scale = operand(10), f"${11 * count}"
    kind = dtype.replace("fp", "f")
    lines = [".reg .pred p, p0, p1; .reg .b32 a, b; .reg .f32 x, y, n0, n1, t0, t1;"]
    for r in (0, 1):
        lines += [f"mov.f32 t{r}, {tile_sum(r)};", f"setp.lt.f32 p{r}, t{r}, {MOST_BITS};"]
    lines += ["and.pred p, p0, p1;", "vote.sync.all.pred p, p, 0xffffffff;"]
    lines += [f"mov.b32 {again(0)}, 0;", "@p bra.uni SMALL;", f"mov.b32 {again(0)}, 1;"]
    for r in (0, 1):
        scores = [f(i) for i in range(r, count, 2) for f in (even, odd)]
        lines += [f"selp.b32 a, 0, 1, p{r};", f"mov.f32 x, {scores[0]};"]
        lines += [f"max.f32 x, x, {score};" for score in scores[1:]]
        for lane in (1, 2):  # the other threads of the row
            lines += [
                f"shfl.sync.bfly.b32 b, a, {lane}, 0x1f, 0xffffffff;",
                "or.b32 a, a, b;",
                f"shfl.sync.bfly.b32 y, x, {lane}, 0x1f, 0xffffffff;",
                "max.f32 x, x, y;",
            ]
        lines += [
            f"mul.f32 x, x, {scale};",
            f"max.f32 x, x, {maximum(r)};",
            f"setp.ne.u32 p{r}, a, 0;",
            f"selp.f32 x, x, {maximum(r)}, p{r};",
            f"sub.f32 y, {maximum(r)}, x;",
            f"ex2.approx.ftz.f32 {factor(r)}, y;",
            f"mul.f32 {row_sum(r)}, {row_sum(r)}, {factor(r)};",
            f"mov.f32 {maximum(r)}, x;",
            f"neg.f32 n{r}, x;",
            f"mov.f32 t{r}, 0f00000000;",
        ]
    for i in range(count):
        r = i % 2
        for number, score in (("x", even(i)), ("y", odd(i))):
            lines += [
                f"fma.rn.f32 {number}, {score}, {scale}, n{r};",
                f"ex2.approx.ftz.f32 {number}, {number};",
            ]
        lines += [
            f"cvt.rn.{kind}x2.f32 {packed(i)}, y, x;",
            "add.f32 x, x, y;",
            f"add.f32 t{r}, t{r}, x;",
        ]
    lines += ["SMALL:"] + [f"add.f32 {row_sum(r)}, {row_sum(r)}, t{r};" for r in (0, 1)]
    return f"{{ {' '.join(lines)} }}"


@gluon.constexpr_function
def shrink_constraints(count):
    """even and odd columns <- the same registers, factor, whether to multiply"""
    same = [str(i) for i in range(2 * count)]
    return ",".join(["=f"] * (2 * count) + same + ["f"] * count + ["r"] * count)


@gluon.constexpr_function
def shrink_text(count):
    """Numbers times their row's factor, in a warp that did a tile again."""
    lines = [".reg .pred p;", f"setp.eq.s32 p, ${5 * count}, 0;", "@p bra.uni SAME;"]
    lines += [f"mul.f32 ${i}, ${i}, ${4 * count + i % 2};" for i in range(2 * count)]
    return f"{{ {' '.join(lines)} SAME: }}"
