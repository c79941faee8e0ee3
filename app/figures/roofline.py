"""The roofline: how fast each kernel runs for the bytes that it moves, under the machine's two roofs.

After Williams, Waterman and Patterson, "Roofline" (2009): FLOP/s <= min(peak, FLOP/byte x bytes/s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from app.figures import logs, units
from app.figures.curves import CHART, Series, flop_rate
from app.figures.lines import legend_name
from app.figures.logs import Decades
from app.figures.look import GREY, look_of
from kernels.bench.reading import Reading
from kernels.bench.run_kernels import tflops

Moved = Callable[[Reading], tuple[int, str] | None]
"""Bytes that one call moved, and how that is known; None where it is not."""


@dataclass(frozen=True)
class Roof:
    """What the machine can do at best."""

    bytes_per_s: float
    flops_per_s: float
    source: str  # "measured", or "recorded"

    @property
    def ridge(self) -> float:
        """FLOP a byte at which both roofs meet."""
        return self.flops_per_s / self.bytes_per_s

    def at(self, intensity: float) -> float:
        """The most FLOP/s at this many FLOP a byte."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)


@dataclass(frozen=True)
class Dot:
    """One reading in the roofline."""

    intensity: float  # FLOP a byte
    rate: float  # FLOP/s
    note: str


def roofline(series: Series, moved: Moved, roof: Roof | None) -> go.Figure:
    """All readings with a time and bytes; a line for each implementation and source of its bytes."""
    found = {
        (name, source): points
        for name in series.names()
        for source, points in dots(series, name, moved).items()
    }
    across = [dot.intensity for points in found.values() for dot in points]
    if roof is not None:
        across += [roof.ridge / 10, roof.ridge * 10]
    wide = logs.decades_around(across, default=(0, 3))
    figure = logs.framed(
        CHART["roofline"], series.about(CHART["roofline_about"]), CHART["intensity"], powers(wide)
    )
    rates = [dot.rate for points in found.values() for dot in points]
    if roof is not None:
        rates += [roof.flops_per_s, roof.flops_per_s / 100]
    span = logs.decades_around(rates, default=(9, 13), air=1.25)
    logs.with_y(figure, span, units.RATE)
    if roof is not None:
        add_roof(figure, roof, wide, span)
    formula = CHART["compulsory"]
    counters = {name for name, source in found if source != formula}
    for (name, source), points in found.items():
        # Beside counters what a formula says is drawn open; in a record one name is enough for both.
        beside = source == formula and bool(counters)
        named = not (beside and name in counters and series.recorded)
        add_dots(figure, name, source, points, beside, named)
    return figure


def powers(span: Decades) -> list[float]:
    """Ticks of the x axis."""
    return [10.0**power if power < 0 else 10**power for power in range(span[0], span[1] + 1)]


def dots(series: Series, name: str, moved: Moved) -> dict[str, list[Dot]]:
    """source of the bytes -> an implementation's points, in the order of what grows."""
    found: dict[str, list[Dot]] = {}
    for reading in series.of(name):
        rate, known = flop_rate(reading), moved(reading)
        if rate is None or known is None or known[0] <= 0:
            continue
        nbytes, source = known
        intensity = flop(reading) / nbytes
        said = CHART["roofline_point"].format(
            rate=units.rate_in_words(rate), intensity=units.three_digits(intensity), source=source
        )
        note = logs.note(
            series.heading(reading), *said.split("<br>"), series.origin(reading, series.source)
        )
        found.setdefault(source, []).append(Dot(intensity, rate, note))
    return found


def flop(reading: Reading) -> float:
    """Operations of one call by the papers' rule."""
    return (tflops(reading.problem, reading.direction, 1.0) or 0.0) * 1e6


def add_roof(figure: go.Figure, roof: Roof, wide: Decades, span: Decades) -> None:
    """The slope of memory and the flat top of arithmetic, each with its name."""
    left, right = 10.0 ** wide[0], 10.0 ** wide[1]
    lowest = max(left, 10.0 ** span[0] / roof.bytes_per_s)
    middle = math.sqrt(lowest * min(roof.ridge, right))
    names = (
        (CHART["memory_roof"], units.bytes_in_words(roof.bytes_per_s), middle, "bottom right"),
        (CHART["compute_roof"], units.rate_in_words(roof.flops_per_s), right, "top left"),
    )
    ends = sorted({lowest, min(max(roof.ridge, lowest), right), right})
    figure.add_trace(
        go.Scatter(
            x=ends,
            y=[roof.at(x) for x in ends],
            mode="lines",
            line={"color": GREY, "width": 2},
            name=CHART["roofline"],
            showlegend=False,
            hoverinfo="skip",
        )
    )
    for text, rate, x, place in names:
        figure.add_trace(
            go.Scatter(
                x=[x],
                y=[roof.at(x)],
                mode="text",
                text=[text.format(rate=rate, source=roof.source)],
                textposition=place,
                textfont={"color": GREY, "size": 11},
                cliponaxis=False,  # a roof may be the chart's upper edge
                showlegend=False,
                hoverinfo="skip",
            )
        )


def add_dots(
    figure: go.Figure,
    name: str,
    source: str,
    points: Sequence[Dot],
    hollow: bool = False,
    named: bool = True,
) -> None:
    look = look_of(name)
    figure.add_trace(
        go.Scatter(
            x=[dot.intensity for dot in points],
            y=[dot.rate for dot in points],
            mode="lines+markers",
            line={"color": look.colour, "width": 1, "dash": look.dash},
            marker={
                "color": look.colour,
                "symbol": look.symbol + ("-open" if hollow else ""),
                "opacity": 1,
                # From small to large as what grows does.
                "size": [8 + 6 * place / max(len(points) - 1, 1) for place in range(len(points))],
            },
            name=legend_name(name, source),
            legendgroup=name,
            showlegend=named,
            hovertext=[dot.note for dot in points],
            hoverinfo="text",
        )
    )
