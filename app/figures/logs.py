"""Charts with two logarithmic axes: ranges in whole decades, ticks with units, straight laws."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from app.figures.look import GREY
from app.figures.units import Units, in_unit, three_digits

HEIGHT_PX = 410
LINE_PX = 28  # of a second line under the title, which stands in the middle of its margin
LEGEND_ROW_PX = 22
IN_A_ROW = 2  # names in a row of the legend; HEIGHT_PX has room for two rows
MOST_TICKS = 7
NOTE_WIDTH = 52  # letters of a line in what the pointer shows
X_MARGIN = 0.06  # of the axis, left and right of the first and the last value
LABEL_ROOM = 0.16  # of the axis, what a number under it takes on a phone

Decades = tuple[int, int]
"""Powers of ten at the two ends of an axis."""


def decades_around(values: Iterable[float], default: Decades = (0, 3), air: float = 1.6) -> Decades:
    """Whole decades that hold all positive values, the largest `air` times; at least one."""
    positive = [value for value in values if value > 0]
    if not positive:
        return default
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive) * air))
    return low, max(high, low + 1)


def decade_ticks(span: Decades, units: Units) -> tuple[list[float], list[str]]:
    """A tick at each decade, or at each second or third where there are many."""
    step = math.ceil((span[1] - span[0] + 1) / MOST_TICKS)
    places = [10.0**power for power in range(span[0], span[1] + 1, step)]
    return places, [in_unit(place, units) for place in places]


def height_for(figure: go.Figure) -> int:
    """Pixels that leave the axes their room, however many names the legend has."""
    traces = figure.to_dict()["data"]
    names = sum(trace.get("showlegend", True) for trace in traces)
    return HEIGHT_PX + LEGEND_ROW_PX * max(0, math.ceil(names / IN_A_ROW) - 2)


def spaced_labels(xs: Sequence[float]) -> list[str]:
    """Each value in words, or nothing where a phone has no room for it; the last is always named."""
    length = math.log(xs[-1] / xs[0]) or 1.0 if xs else 1.0
    labels, named = [], -math.inf  # where on the axis the last label stands
    for x in xs:
        place = math.log(x / xs[0]) / length
        fits = place - named >= LABEL_ROOM and 1 - place >= LABEL_ROOM
        labels.append(f"{x:,}" if fits or x == xs[-1] else "")
        named = place if labels[-1] else named
    return labels


def framed(title: str, about: str, x_title: str, xs: Sequence[float]) -> go.Figure:
    """An empty chart whose x axis has a tick at each value, so that nothing moves as points come in."""
    ends = [math.log10(min(xs)), math.log10(max(xs))] if xs else [0.0, 1.0]
    air = max(ends[1] - ends[0], 0.3) * X_MARGIN
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "subtitle": {"text": about}},
        height=HEIGHT_PX,
        uirevision="sweep",
        hovermode="closest",
        hoverlabel={"align": "left"},
        margin={"l": 64, "r": 12, "t": 72 + LINE_PX * about.count("<br>"), "b": 40},
        legend={
            "orientation": "h",
            "maxheight": 0.9,  # of the chart, whose height leaves the axes their room
            "xref": "container",
            "x": 0.02,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
        },
    )
    figure.update_xaxes(
        title=x_title,
        type="log",
        range=[ends[0] - air, ends[1] + 1.5 * air],
        tickvals=list(xs),
        ticktext=spaced_labels(xs),
        showgrid=False,
    )
    return figure


def with_y(figure: go.Figure, span: Decades, units: Units, title: str = "") -> go.Figure:
    """The same with its y axis over these decades."""
    places, words = decade_ticks(span, units)
    figure.update_yaxes(
        type="log", range=[*span], tickvals=places, ticktext=words, title=title or None
    )
    return figure


def say(figure: go.Figure, sentence: str) -> None:
    """Words in the middle of a chart that has nothing to show yet."""
    figure.add_annotation(
        text=sentence, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_color=GREY
    )


def law(
    start: tuple[float, float], power: float, end_x: float, span: Decades
) -> list[tuple[float, float]]:
    """y = y0 * (x / x0)^power from its first point to the edge of the chart: a straight line here."""
    x0, y0 = start
    top = 10.0 ** span[1]
    leaves = x0 * (top / y0) ** (1 / power)
    x1 = min(end_x, leaves)
    return [(x0, y0), (x1, y0 * (x1 / x0) ** power)]


def add_law(figure: go.Figure, points: Sequence[tuple[float, float]], name: str) -> None:
    """A thin grey line with its name at its upper end."""
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            mode="lines+text",
            text=["", name],
            textposition="top left",
            cliponaxis=False,
            textfont={"color": GREY, "size": 11},
            line={"color": GREY, "width": 1},
            name=name,
            showlegend=False,
            hoverinfo="skip",
        )
    )


def marks_from_top(count: int, span: Decades) -> list[float]:
    """Heights for marks that have no value: one under the other from the chart's top."""
    high, size = span[1], span[1] - span[0]
    return [10.0 ** (high - size * (0.04 + 0.065 * place)) for place in range(count)]


def note(*lines: str) -> str:
    """What the pointer shows: each line broken where it is long, and nothing in it taken for markup."""
    return "<br>".join(wrapped(line, NOTE_WIDTH) for line in lines if line)


def wrapped(line: str, width: int) -> str:
    return "<br>".join(html.escape(part) for part in textwrap.wrap(line, width))


def at(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else three_digits(x)
