# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportAssignmentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportReturnType=false
"""From scores to P in FP8 without exponentials: e4m3's byte is eight times a number's logarithm, nearly.

Two scores go together through float16: 13 instructions for four weights, where exponentials take 18, four of them in
the special function unit. `kernels.fp8.reference.straight_exp2` is the same in torch, and says how far
off it is. Scores fit in float16 because of how q and k are scaled (`kernels.fp8.quantized`).
"""

from __future__ import annotations

from kernels.fp8.reference import STRAIGHT_SHIFT
from kernels.fp8.weights import ROWS, as_packed, by_places, like_rows_of, risen
from kernels.hopper import gl, gluon

STEPS = gl.constexpr(8.0 / 126.0)
"""Of e4m3's byte in a power of two, where 1 is the largest byte, 126 (127 is NaN)."""

START = gl.constexpr((7.0 - STRAIGHT_SHIFT) * 8.0 / 126.0)
"""The byte of 2^0, so counted."""


@gluon.jit
def of_two(text: gl.constexpr, one, other):
    """An instruction of two words."""
    return gl.inline_asm_elementwise(
        text, "=r,r,r", [one, other], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def as_halves(scores):
    """Two scores a word, in float16: columns 2q, 2q+1 of each 16, and 2q+8, 2q+9. -> twice int32 [64, width // 4]"""
    even_low, odd_low, even_high, odd_high = by_places(scores)
    text: gl.constexpr = "cvt.rn.f16x2.f32 $0, $2, $1;"
    low = gl.inline_asm_elementwise(
        text, "=r,f,f", [even_low, odd_low], dtype=gl.int32, is_pure=True, pack=1
    )
    high = gl.inline_asm_elementwise(
        text, "=r,f,f", [even_high, odd_high], dtype=gl.int32, is_pure=True, pack=1
    )
    return low, high


@gluon.jit
def folded(words, text: gl.constexpr):
    """Of a row's 32 words, two by two, until each of its four threads has one. [64, 32] -> [64, 4]"""
    parts = gl.reshape(words, [ROWS, 2, 2, 2, 4]).permute([0, 4, 1, 2, 3])
    for _ in gl.static_range(3):
        one, other = gl.split(parts)
        parts = of_two(text, one, other)
    return parts


@gluon.jit
def halves_together(words, text: gl.constexpr):
    """An instruction of the two float16 of each word, in float32."""
    start: gl.constexpr = (
        "{ .reg .b16 a, b; .reg .f32 x, y; mov.b32 {a, b}, $1; cvt.f32.f16 x, a; cvt.f32.f16 y, b; "
    )
    return gl.inline_asm_elementwise(
        start + text + " }", "=f,r", [words], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def twice(number):
    """float32 -> a word of two equal float16."""
    return gl.inline_asm_elementwise(
        "cvt.rn.f16x2.f32 $0, $1, $1;", "=r,f", [number], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def weigh_in_bytes(low, high, scale, shift):
    """Bytes of 2^(scores * scale - shift), each in a float16's low byte, and their sums. -> int32 twice, f32 [64, 4]

    First the byte / 126, cut to 0 ... 1, and then 1024 + the byte, whose last bit is 1. Moved up by seven
    bits a byte of e4m3 is the float16 of its number / 2^8, so P is summed as it was rounded.
    """
    scale2 = twice(scale * STEPS)
    start2 = like_rows_of(twice(START - shift * STEPS), low)
    low, high, sums = gl.inline_asm_elementwise(
        "{ .reg .b32 a, b, most, unit; mov.b32 most, 0x57E057E0; mov.b32 unit, 0x64006400; "
        "fma.rn.sat.f16x2 a, $3, $5, $6; fma.rn.sat.f16x2 b, $4, $5, $6; "
        "fma.rn.f16x2 $0, a, most, unit; fma.rn.f16x2 $1, b, most, unit; "
        "mad.lo.u32 a, $0, 128, 0xFFCE0000; mad.lo.u32 b, $1, 128, 0xFFCE0000; "
        "add.f16x2 $2, a, b; }", "=&r,=&r,=r,r,r,r,r", [low, high, scale2, start2],
        dtype=(gl.int32, gl.int32, gl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    return (
        low,
        high,
        256.0 * halves_together(folded(sums, "add.f16x2 $0, $1, $2;"), "add.f32 $0, x, y;"),
    )


@gluon.jit
def soften_in_bytes(scores, shift, scale):
    """-> bytes of the weights in two parts, their sums [64, 4], the new shift, and the factor for what was before."""
    low, high = as_halves(scores)
    MOST: gl.constexpr = "max.f16x2 $0, $1, $2;"
    largest = gl.max(halves_together(folded(of_two(MOST, low, high), MOST), "max.f32 $0, x, y;"), 1)
    largest = gl.convert_layout(largest, shift.type.layout, assert_trivial=True)
    new_shift = risen(largest * scale, shift)
    low, high, sums = weigh_in_bytes(low, high, scale, new_shift)
    return low, high, sums, new_shift, gl.exp2(shift - new_shift)


@gluon.jit
def pack_bytes(low, high):
    """Four bytes to a word, as `kernels.fp8.weights.pack` makes them."""
    return as_packed(of_two("prmt.b32 $0, $1, $2, 0x6420;", low, high))
