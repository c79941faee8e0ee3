"""Numbers as a chart and a sentence write them: three digits that count, and a unit."""

from __future__ import annotations

import math

TIME_US = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
RATE = (
    (1e15, "PFLOP/s"),
    (1e12, "TFLOP/s"),
    (1e9, "GFLOP/s"),
    (1e6, "MFLOP/s"),
    (1e3, "kFLOP/s"),
    (1.0, "FLOP/s"),
)
PLAIN = ((1.0, ""),)
Units = tuple[tuple[float, str], ...]
"""Sizes of a unit in the number's own one, the largest first, and their names."""


def in_unit(value: float, units: Units) -> str:
    """1370.0 bytes -> "1.37 kB"; the largest unit of which there is at least one."""
    size, name = next(((s, n) for s, n in units if value >= s * 0.9995), units[-1])
    return f"{three_digits(value / size)} {name}".rstrip()


def three_digits(value: float) -> str:
    """1234.5 -> "1,234", 12.345 -> "12.3", 0.001234 -> "0.00123"."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def time_in_words(time_us: float) -> str:
    return in_unit(time_us, TIME_US)


def bytes_in_words(nbytes: float) -> str:
    return in_unit(nbytes, BYTES)


def rate_in_words(flop_per_s: float) -> str:
    return in_unit(flop_per_s, RATE)
