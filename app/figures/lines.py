"""Lines with markers, spreads, laws and crosses on two logarithmic axes; what they mean is told elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from app.figures import logs, units
from app.figures.logs import Decades
from app.figures.look import in_order, look_of
from app.text import speed as words

CHART = words.CHART


@dataclass(frozen=True)
class Point:
    """One figure at one x. `low` and `high` are None where there is no spread."""

    x: float
    y: float
    note: str  # what the pointer shows, marked up by `logs.note`
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """One implementation's figures from one source."""

    implementation: str
    source: str
    points: tuple[Point, ...]
    style: str = "full"  # "full", "thin" without markers, "open" markers alone, or "dotted"
    named: bool = True  # in the legend; a line that is not belongs to its implementation's that is


@dataclass(frozen=True)
class Mark:
    """What could not be run at this x, and why."""

    x: float
    implementation: str
    sentence: str


@dataclass(frozen=True)
class Chart:
    """All that one chart shows. `powers` are those of the laws: 2 for N², 1 for N."""

    title: str
    about: str
    over: str
    xs: tuple[int, ...]
    units: units.Units
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    powers: tuple[int, ...] = ()
    empty: Decades = (0, 3)  # of the y axis before there is anything
    nothing: str = CHART["empty"]  # said then


def draw(chart: Chart) -> go.Figure:
    """Laws first, so that they lie under the lines."""
    figure = logs.framed(chart.title, chart.about, CHART[chart.over], chart.xs)
    lines = [kept(line) for line in chart.lines]
    span = (
        logs.decades_around(
            value
            for line in lines
            for point in line.points
            for value in (point.y, point.low, point.high)
            if value is not None
        )
        if any(line.points for line in lines)
        else chart.empty
    )
    logs.with_y(figure, span, chart.units)
    for power, points in laws(chart, lines, span):
        name = CHART["law_square"] if power == 2 else CHART["law_linear"]
        logs.add_law(figure, points, name if chart.over == "tokens" else CHART["law_linear_other"])
    for line in lines:
        add_line(figure, line)
    if not any(line.points for line in lines):
        logs.say(figure, chart.nothing)
    add_marks(figure, chart.marks, span)
    return figure


def kept(line: Line) -> Line:
    """A line without what a logarithmic axis cannot show: zero bytes."""
    return replace(line, points=tuple(point for point in line.points if point.y > 0))


def laws(
    chart: Chart, lines: Sequence[Line], span: Decades
) -> list[tuple[int, list[tuple[float, float]]]]:
    """N² from the highest first point, N from the lowest: each beside what it may explain."""
    starts = [(line.points[0].x, line.points[0].y) for line in lines if line.points]
    if not starts or len(chart.xs) < 2:
        return []
    first_x = min(x for x, _ in starts)
    ys = [y for x, y in starts if x == first_x]
    found = []
    for power in chart.powers:
        start = first_x, max(ys) if power == 2 else min(ys)
        if start[0] < max(chart.xs):
            found.append((power, logs.law(start, power, max(chart.xs), span)))
    return found


def add_line(figure: go.Figure, line: Line) -> None:
    look = look_of(line.implementation)
    name = legend_name(line.implementation, line.source)
    mode = {"thin": "lines", "open": "markers"}.get(line.style, "lines+markers")
    dash = "dot" if line.style == "dotted" else look.dash
    symbol = look.symbol + ("-open" if line.style in ("open", "dotted") else "")
    spread = any(point.low is not None for point in line.points)
    figure.add_trace(
        go.Scatter(
            # Without any value Plotly would leave it out of the legend, which then grows and pushes.
            x=[point.x for point in line.points] or [None],
            y=[point.y for point in line.points] or [None],
            error_y={
                "type": "data",
                "array": [(point.high or point.y) - point.y for point in line.points],
                "arrayminus": [point.y - (point.low or point.y) for point in line.points],
                "thickness": 1.2,
                "width": 3,
                "visible": spread,
            },
            mode=mode,
            name=name,
            legendgroup=line.implementation if line.style == "full" or not line.named else name,
            showlegend=line.named,
            line={"color": look.colour, "width": 1 if line.style == "thin" else 2, "dash": dash},
            marker={"color": look.colour, "size": 9, "symbol": symbol},
            hovertext=[point.note for point in line.points],
            hoverinfo="text",
        )
    )


def legend_name(implementation: str, source: str) -> str:
    """Who, and how it was got; "recorded" stands under the title, for all lines at once."""
    own = source.removeprefix(CHART["recorded"]).strip()
    return CHART["line"].format(name=implementation, source=own) if own else implementation


def add_marks(figure: go.Figure, marks: Sequence[Mark], span: Decades) -> None:
    """A cross at the top for each, in its implementation's colour and with its name."""
    names = in_order({mark.implementation for mark in marks})
    heights = dict(zip(names, logs.marks_from_top(len(names), span), strict=True))
    for name in names:
        own = [mark for mark in marks if mark.implementation == name]
        look = look_of(name)
        figure.add_trace(
            go.Scatter(
                x=[mark.x for mark in own],
                y=[heights[name]] * len(own),
                mode="markers+text",
                marker={"color": look.colour, "size": 8, "symbol": "x"},
                text=[name if place == 0 else "" for place in range(len(own))],
                textposition="middle left",
                textfont={"color": look.colour, "size": 11},
                hovertext=[
                    logs.note(CHART["not_run"].format(name=name, x=logs.at(mark.x)), mark.sentence)
                    for mark in own
                ],
                hoverinfo="text",
                name=CHART["not_run"].format(name=name, x=""),
                legendgroup=name,
                showlegend=False,
                cliponaxis=False,
            )
        )
