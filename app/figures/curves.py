"""Time, speed, memory and bytes over what grows: readings in, charts out.

Every line is named "implementation · source", so that no figure stands without how it was got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import plotly.graph_objects as go

from app.figures import logs, units
from app.figures.lines import Chart, Line, Mark, Point, draw
from app.figures.look import in_order
from app.text import speed as words
from kernels.bench.reading import Reading
from kernels.bench.run_kernels import tflops
from kernels.problem import Problem

FIELDS = {"tokens": "queries", "batch": "batch", "heads": "heads", "head_dim": "head_dim"}
"""What can grow, and its field of `Problem`."""

CHART = words.CHART
Formulas = Mapping[tuple[Problem, str, str], int]
"""(problem, implementation, direction) -> bytes read and written, by formula."""


@dataclass(frozen=True)
class Series:
    """The readings of one sweep: what grows and at which values, and how the figures were got."""

    over: str  # a key of FIELDS
    xs: tuple[int, ...]
    readings: tuple[Reading, ...]
    source: str = "measured"  # or "recorded"
    untimed: frozenset[str] = frozenset()  # those of whom this machine can have no time and no peak

    def x(self, problem: Problem) -> int:
        return getattr(problem, FIELDS[self.over])

    @property
    def recorded(self) -> bool:
        return self.source == CHART["recorded"]

    def names(self) -> list[str]:
        return in_order({reading.implementation for reading in self.readings})

    def of(self, name: str) -> list[Reading]:
        """An implementation's readings by x."""
        own = [reading for reading in self.readings if reading.implementation == name]
        return sorted(own, key=lambda reading: self.x(reading.problem))

    def heading(self, reading: Reading) -> str:
        """The first line of what the pointer shows."""
        x = logs.at(self.x(reading.problem))
        return CHART["point"].format(name=reading.implementation, x=x, over=words.SWEEP[self.over])

    def about(self, text: str) -> str:
        """What stands under a title: whatever was recorded names its machine, also in a saved picture."""
        machines = [reading.machine for reading in self.readings if reading.machine]
        if not self.recorded or not machines:
            return text
        return CHART["recorded_about"].format(machine=machines[0], about=text)

    def origin(self, reading: Reading, source: str) -> str:
        """The last line: how, where and when."""
        parts = [source, reading.machine, reading.when, CHART["busy"] if reading.busy else ""]
        return " · ".join(part for part in parts if part)


# --- the four charts --------------------------------------------------------------------------------


def time_chart(series: Series) -> go.Figure:
    """Median time of one call in µs, with the lowest and the highest."""

    def point(reading: Reading) -> Point | None:
        if reading.time_us is None:
            return None
        low, high = reading.time_low_us, reading.time_high_us
        said = CHART["time_point"].format(
            time=units.time_in_words(reading.time_us),
            low=units.time_in_words(low or reading.time_us),
            high=units.time_in_words(high or reading.time_us),
            samples=reading.samples,
            by=CHART.get(f"by_{reading.timed_by}", reading.timed_by),
        )
        note = logs.note(series.heading(reading), said, series.origin(reading, series.source))
        return Point(series.x(reading.problem), reading.time_us, note, low, high)

    lines = measured_lines(series, point)
    return draw(
        Chart(
            title=CHART["time"],
            about=series.about(CHART["time_about"]),
            over=series.over,
            xs=series.xs,
            units=units.TIME_US,
            empty=(0, 5),
            lines=lines,
            marks=marks(series, lines, "time"),
            powers=powers_of(series),
        )
    )


def rate_chart(series: Series) -> go.Figure:
    """FLOP/s by the papers' rule and the median time."""

    def point(reading: Reading) -> Point | None:
        rate = flop_rate(reading)
        if rate is None:
            return None
        said = CHART["rate_point"].format(rate=units.rate_in_words(rate))
        note = logs.note(series.heading(reading), said, series.origin(reading, series.source))
        return Point(series.x(reading.problem), rate, note)

    lines = measured_lines(series, point)
    return draw(
        Chart(
            title=CHART["rate"],
            about=series.about(rate_rule(series)),
            over=series.over,
            xs=series.xs,
            units=units.RATE,
            empty=(9, 13),
            lines=lines,
            marks=marks(series, lines, "time"),
        )
    )


def memory_chart(series: Series) -> go.Figure:
    """The peak of one call, in bytes beyond its inputs."""

    def point(reading: Reading) -> Point | None:
        if reading.peak_bytes is None:
            return None
        by = CHART.get(f"by_{reading.peak_by}", reading.peak_by)
        said = CHART["memory_point"].format(bytes=units.bytes_in_words(reading.peak_bytes), by=by)
        note = logs.note(series.heading(reading), said, series.origin(reading, series.source))
        return Point(series.x(reading.problem), reading.peak_bytes, note)

    lines = measured_lines(series, point)
    ways = {reading.peak_by for reading in series.readings if reading.peak_bytes is not None}
    way = f"memory_about_{ways.pop()}" if len(ways) == 1 else "memory_about"
    return draw(
        Chart(
            title=CHART["memory"],
            about=series.about(CHART.get(way, CHART["memory_about"])),
            over=series.over,
            xs=series.xs,
            units=units.BYTES,
            empty=(5, 9),
            lines=lines,
            marks=marks(series, lines, "memory"),
            powers=powers_of(series),
        )
    )


def traffic_chart(series: Series, formulas: Formulas, hbm: bool) -> go.Figure:
    """Bytes read and written: by formula, counted, and in HBM where `hbm` says that it is asked.

    A line that waits for its points keeps its place in the legend; what was recorded has all it will ever have.
    """
    lines = []
    for name in series.names():
        own = series.of(name)
        keys = [(r.problem, name, r.direction) for r in own]
        if any(key in formulas for key in keys):
            formula = [formula_point(series, reading, formulas) for reading in own]
            lines.append(Line(name, CHART["formula"], present(formula), "thin"))
            counted = [bytes_point(series, r, "counted", CHART["counted"]) for r in own]
            lines.append(Line(name, CHART["counted"], present(counted), "open"))
        for cache, style in (("cold", "full"), ("warm", "dotted")):
            source = CHART[cache].format(source=series.source)
            points = present([bytes_point(series, r, f"hbm_{cache}", source) for r in own])
            if points or (hbm and not series.recorded):
                named = cache == "cold" or not series.recorded
                lines.append(Line(name, source, points, style, named))
    return draw(
        Chart(
            title=CHART["traffic"],
            about=series.about(traffic_about(series, hbm)),
            over=series.over,
            xs=series.xs,
            units=units.BYTES,
            empty=(5, 9),
            lines=tuple(lines),
            nothing=CHART["not_recorded" if series.recorded else "empty"],
            marks=marks(series, lines, "hbm"),
            powers=powers_of(series),
        )
    )


def traffic_about(series: Series, hbm: bool) -> str:
    """Which bytes these are."""
    if not hbm:
        return CHART["traffic_about"]
    return CHART["traffic_about_recorded" if series.recorded else "traffic_about_gpu"]


# --- their points -----------------------------------------------------------------------------------


def flop_rate(reading: Reading) -> float | None:
    rate = tflops(reading.problem, reading.direction, reading.time_us)
    return None if rate is None else rate * 1e12


def measured_lines(series: Series, point: Callable[[Reading], Point | None]) -> tuple[Line, ...]:
    """A line for each implementation, also before it has points; not for who could be run nowhere."""
    missing = series.untimed | nowhere(series, "time").keys()
    return tuple(
        Line(
            name,
            series.source,
            present(point(reading) for reading in series.of(name)),
        )
        for name in series.names()
        if name not in missing
    )


def present(points: Iterable[Point | None]) -> tuple[Point, ...]:
    return tuple(point for point in points if point is not None)


def formula_point(series: Series, reading: Reading, formulas: Formulas) -> Point | None:
    total = formulas.get((reading.problem, reading.implementation, reading.direction))
    if total is None:
        return None
    said = CHART["formula_point"].format(total=units.bytes_in_words(total))
    note = logs.note(series.heading(reading), said, CHART["formula"])
    return Point(series.x(reading.problem), total, note)


def bytes_point(series: Series, reading: Reading, field: str, source: str) -> Point | None:
    pair = getattr(reading, field)
    if pair is None:
        return None
    said = CHART["traffic_point"].format(
        total=units.bytes_in_words(sum(pair)),
        read=units.bytes_in_words(pair[0]),
        written=units.bytes_in_words(pair[1]),
    )
    note = logs.note(series.heading(reading), said, series.origin(reading, source))
    return Point(series.x(reading.problem), sum(pair), note)


def marks(series: Series, lines: Iterable[Line], key: str) -> tuple[Mark, ...]:
    """Where an implementation stops that has points elsewhere in this chart.

    What could be run nowhere has no place on the axis; `nowhere` names it.
    """
    drawn = {line.implementation for line in lines if line.points}
    return tuple(
        Mark(series.x(reading.problem), reading.implementation, reading.refused[key])
        for reading in series.readings
        if key in reading.refused and reading.implementation in drawn
    )


def nowhere(series: Series, key: str) -> dict[str, str]:
    """implementation -> why, for those refused at every value."""
    found = {}
    for name in series.names():
        reasons = [reading.refused.get(key) for reading in series.of(name)]
        if reasons and all(reasons):
            found[name] = str(reasons[0])
    return found


def rate_rule(series: Series) -> str:
    """The rule by which operations are counted."""
    both = any(reading.direction == "forward+backward" for reading in series.readings)
    about = CHART["rate_about_backward"] if both else CHART["rate_about"]
    causal = any(reading.problem.causal for reading in series.readings)
    return CHART["rate_causal"].format(about=about) if causal else about


def powers_of(series: Series) -> tuple[int, ...]:
    """Tokens have two laws, whatever else grows has one."""
    return (2, 1) if series.over == "tokens" else (1,)
