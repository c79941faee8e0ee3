"""How each implementation looks in a chart: a colour, and a dash and a marker for who sees no colours."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.registry import IMPLEMENTATIONS


@dataclass(frozen=True)
class Look:
    """Colour "#rrggbb", and the dash and the marker by Plotly's names."""

    colour: str
    dash: str
    symbol: str


# Each colour has a contrast of 3 to 1 or more on the light and on the dark page; a test checks.
PURPLE, GREEN, VERMILION, OCHRE, BLUE = "#a267b0", "#0b8a63", "#d55e00", "#a87600", "#2a7fc0"
GREY = "#7f868e"
"""Laws and roofs: beside the implementations, never one of them."""

LOOKS = {
    "eager": Look(PURPLE, "dash", "square"),
    "torch-cpu-flash": Look(GREEN, "solid", "diamond"),
    "naive": Look(VERMILION, "dashdot", "triangle-up"),
    "fa1": Look(OCHRE, "longdash", "triangle-down"),
    "fa2": Look(BLUE, "solid", "circle"),
    "fa3": Look(BLUE, "dashdot", "diamond-tall"),
    "sdpa-flash": Look(PURPLE, "dot", "star"),
    "sdpa-cudnn": Look(GREEN, "longdashdot", "pentagon"),
    "sdpa-efficient": Look(OCHRE, "dot", "hexagon"),
    "flex": Look(VERMILION, "dot", "hourglass"),
    "flash-attn-2": Look(BLUE, "dash", "star-square"),
    "flash-attn-3": Look(PURPLE, "longdash", "star-diamond"),
    "flash-attn-4": Look(GREEN, "dash", "bowtie"),
}
UNKNOWN = Look(VERMILION, "longdash", "cross")
"""A new implementation that has no look yet."""


def look_of(name: str) -> Look:
    return LOOKS.get(name, UNKNOWN)


def in_order(names: set[str]) -> list[str]:
    """Names in the registry's order."""
    return [name for name in IMPLEMENTATIONS if name in names]
