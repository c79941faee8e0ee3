"""The assembly text that adds up weights, a part of the exponentials on the multiply-add units.

2^x without the exponential unit: u = (x + 127) / 256, held between 0 and 1 by the saturation that an fma
gives for nothing. The bits of u + 1, moved up by 8 places, are those of -2^n * m, with n = floor(x) and
m - 1 = x - n to 15 places: what was the whole part has come to stand where a float32 has its exponent. A
polynomial turns m into 2^(m - 1), and one more fma takes away the sign and adds up. Below 2^-127 it gives 0,
as `ftz` does; x must be under 129. Schraudolph 1999 has the idea of writing an exponent from a number's bits.
"""

from __future__ import annotations

from triton.experimental import gluon

TO_THE_FRACTION = ("0f3D9FCB56", "0fBC032D93", "0f3EF49EA2", "0f3EE77E28")
"""2^(m - 1) for m from 1 to 2, highest power first, as PTX writes a float32: 0.07802455, -0.00800647,
0.47777277, 0.45213437. Wrong by 7.5e-5 of it at most, and by 5e-6 on average."""

OPERANDS = ("out", "score", "total", "shift", "fixed", "scale", "small", "w")
"""Eight of each: the sums after and before, the scores, and what stands for them at each element: the shift,
(127 + shift) / 256, scale, scale / 256, and w."""


@gluon.constexpr_function
def receive_text(polynomials: int, row: int, weighted: bool) -> str:
    """total + w * 2^(scale * score + shift), eight elements of a row at once; `places_of` has the others."""
    places = places_of(polynomials, row)
    lines = ["{ .reg .f32 x, m, p; .reg .b32 z, e;"]
    for i in range(8):
        name = {operand: f"${i + 8 * n}" for n, operand in enumerate(OPERANDS)}
        lines += by_polynomial(name, weighted) if i in places else by_unit(name, weighted)
    return " ".join([*lines, "}"])


@gluon.constexpr_function
def places_of(polynomials: int, row: int) -> list[int]:
    """Which of a row's eight elements go by polynomial, of `polynomials` (at most 8) in rows 0 and 1.

    Spread evenly, and never the same places in both rows. An element's place goes with its key, and the
    saturation makes a NaN 0: so each key has terms that show it.
    """
    return [i * 8 // polynomials for i in range(polynomials) if i % 2 == row]


@gluon.constexpr_function
def by_unit(name: dict[str, str], weighted: bool) -> list[str]:
    """One element, on the exponential unit."""
    end = "fma.rn.ftz.f32 {out}, x, {w}, {total};" if weighted else "add.ftz.f32 {out}, x, {total};"
    lines = ["fma.rn.ftz.f32 x, {score}, {scale}, {shift};", "ex2.approx.ftz.f32 x, x;", end]
    return [line.format(**name) for line in lines]


@gluon.constexpr_function
def by_polynomial(name: dict[str, str], weighted: bool) -> list[str]:
    """One element, on the multiply-add units: see the head of this file."""
    first, *rest = TO_THE_FRACTION
    lines = [
        "fma.rn.ftz.sat.f32 x, {score}, {small}, {fixed};",
        "add.ftz.f32 x, x, 0f3F800000;",
        "mov.b32 z, x; shl.b32 z, z, 8;",
        "and.b32 e, z, 0xFF800000;",  # -2^n
        "sub.u32 z, z, e; add.u32 z, z, 0x3F800000; mov.b32 m, z;",  # m
        f"mov.f32 p, {first};",
        *(f"fma.rn.ftz.f32 p, p, m, {factor};" for factor in rest),
        "mov.b32 x, e; neg.ftz.f32 x, x;",
        *(["mul.ftz.f32 x, x, {w};"] if weighted else []),
        "fma.rn.ftz.f32 {out}, x, p, {total};",
    ]
    return [line.format(**name) for line in lines]


@gluon.constexpr_function
def operands() -> str:
    """The assembly's constraints: eight results and all inputs in float32 registers."""
    return ",".join(["=f"] * 8 + ["f"] * 8 * (len(OPERANDS) - 1))
