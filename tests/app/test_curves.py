"""Charts from readings: the values, the laws' slopes, what is marked and what a line is called."""

from __future__ import annotations

import csv
import io
import itertools
import math
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from app.figures import curves, logs, look, units
from app.figures.curves import Series
from app.figures.roofline import Roof, roofline
from app.figures.table import as_csv, filled, rows
from app.text.speed import CHART, TABLE
from kernels import Problem
from kernels.bench.reading import Reading
from kernels.registry import IMPLEMENTATIONS
from tests.app.played_sweep import played_reading, refused_reading
from tests.test_house import THEME, contrast

TOKENS = (257, 1370, 5477, 21905)
CROSS = "naive needs 75 GB <here>; this GPU has 24 GB free."


def problem(tokens: int, causal: bool = False) -> Problem:
    return Problem(1, 6, tokens, tokens, 64, "bfloat16", causal)


def series(*names: str, direction: str = "forward", causal: bool = False) -> Series:
    readings = [
        played_reading((problem(tokens, causal), name, direction))
        for tokens in TOKENS
        for name in names or ("naive", "fa2")
    ]
    return Series("tokens", TOKENS, tuple(readings))


def with_refusal(found: Series, name: str, tokens: int) -> Series:
    """One of them could not be run."""
    return replace(
        found,
        readings=tuple(
            refused_reading((r.problem, r.implementation, r.direction), CROSS)
            if (r.implementation, r.problem.queries) == (name, tokens)
            else r
            for r in found.readings
        ),
    )


def named(figure: go.Figure) -> dict[str, dict]:
    """The traces in the legend by their names."""
    traces = figure.to_dict()["data"]
    return {trace["name"]: trace for trace in traces if trace.get("showlegend", True)}


def laws(figure: go.Figure) -> dict[str, dict]:
    names = {CHART["law_square"], CHART["law_linear"], CHART["law_linear_other"]}
    return {trace["name"]: trace for trace in figure.to_dict()["data"] if trace["name"] in names}


def slope(trace: dict) -> float:
    (x0, x1), (y0, y1) = trace["x"], trace["y"]
    return math.log(y1 / y0) / math.log(x1 / x0)


CHARTS = {
    "time": curves.time_chart,
    "rate": curves.rate_chart,
    "memory": curves.memory_chart,
    "traffic": lambda found: curves.traffic_chart(found, {}, hbm=False),
}


def test_the_median_and_its_spread_are_drawn() -> None:
    found = series()
    line = named(curves.time_chart(found))["fa2 · measured"]
    own = found.of("fa2")
    assert list(line["x"]) == list(TOKENS)
    assert list(line["y"]) == [reading.time_us for reading in own]
    above, below = line["error_y"]["array"], line["error_y"]["arrayminus"]
    for reading, up, down, y in zip(own, above, below, line["y"], strict=True):
        assert (y + up, y - down) == pytest.approx((reading.time_high_us, reading.time_low_us))


@pytest.mark.parametrize(
    ("direction", "causal", "factor"),
    [("forward", False, 4), ("forward", True, 2), ("forward+backward", False, 14)],
)
def test_speed_goes_by_the_papers_rule(direction: str, causal: bool, factor: int) -> None:
    found = series("fa2", direction=direction, causal=causal)
    line = named(curves.rate_chart(found))["fa2 · measured"]
    for reading, rate in zip(found.of("fa2"), line["y"], strict=True):
        flop = factor * 6 * reading.problem.queries**2 * 64
        assert rate == pytest.approx(flop / (reading.time_us * 1e-6))


@pytest.mark.parametrize("chart", ["time", "memory"])
def test_the_laws_are_straight_lines_of_slope_two_and_one(chart: str) -> None:
    found = laws(CHARTS[chart](series()))
    assert slope(found[CHART["law_square"]]) == pytest.approx(2)
    assert slope(found[CHART["law_linear"]]) == pytest.approx(1)


def test_the_laws_start_at_the_first_points() -> None:
    found = series()
    figure = curves.memory_chart(found)
    lines = named(figure)
    square, linear = (laws(figure)[CHART[name]] for name in ("law_square", "law_linear"))
    assert (square["x"][0], square["y"][0]) == (257, lines["naive · measured"]["y"][0])
    assert (linear["x"][0], linear["y"][0]) == (257, lines["fa2 · measured"]["y"][0])
    top = 10 ** figure.to_dict()["layout"]["yaxis"]["range"][1]
    assert max(square["y"]) <= top * 1.0001


def test_what_is_no_token_has_one_law() -> None:
    readings = [played_reading((Problem(b, 6, 257, 257, 64), "fa2", "forward")) for b in (1, 2, 4)]
    found = laws(curves.time_chart(Series("batch", (1, 2, 4), tuple(readings))))
    assert list(found) == [CHART["law_linear_other"]]
    assert slope(found[CHART["law_linear_other"]]) == pytest.approx(1)


@pytest.mark.parametrize("chart", CHARTS)
def test_both_axes_are_logarithmic_and_x_has_its_values(chart: str) -> None:
    layout = CHARTS[chart](series()).to_dict()["layout"]
    assert layout["xaxis"]["type"] == layout["yaxis"]["type"] == "log"
    assert list(layout["xaxis"]["tickvals"]) == list(TOKENS)


def test_out_of_memory_is_marked_where_it_happens() -> None:
    figure = curves.time_chart(with_refusal(series(), "naive", 21905))
    (mark,) = [t for t in figure.to_dict()["data"] if t.get("marker", {}).get("symbol") == "x"]
    assert list(mark["x"]) == [21905]
    assert "naive needs 75 GB &lt;here&gt;" in mark["hovertext"][0].replace("<br>", " ")
    assert mark["marker"]["color"] == look.look_of("naive").colour
    assert 21905 not in named(figure)["naive · measured"]["x"]


def test_who_could_be_run_nowhere_is_named_instead() -> None:
    found = series()
    for tokens in TOKENS:
        found = with_refusal(found, "naive", tokens)
    figure = curves.time_chart(found)
    assert list(named(figure)) == ["fa2 · measured"]
    assert not [t for t in figure.to_dict()["data"] if t.get("marker", {}).get("symbol") == "x"]
    assert curves.nowhere(found, "time") == {"naive": CROSS}


def test_bytes_say_how_each_was_got() -> None:
    found = series()
    known = {(r.problem, "fa2", "forward"): 1000 * r.problem.queries for r in found.of("fa2")}
    hbm = replace(
        found,
        readings=tuple(replace(r, hbm_cold=(300, 40), hbm_warm=(200, 0)) for r in found.readings),
    )
    lines = named(curves.traffic_chart(hbm, known, hbm=True))
    expected = [f"fa2 · {CHART['formula']}", f"fa2 · {CHART['counted']}"]
    assert [name for name in lines if "cold" not in name and "warm" not in name] == expected
    assert list(lines["fa2 · formula"]["y"]) == [1000 * tokens for tokens in TOKENS]
    assert list(lines["fa2 · counted"]["y"]) == [sum(r.counted) for r in found.of("fa2")]
    assert list(lines["naive · measured cold"]["y"]) == [340] * 4
    assert list(lines["naive · measured warm"]["y"]) == [200] * 4
    styles = [
        (line["mode"], line["line"]["dash"], line["marker"]["symbol"]) for line in lines.values()
    ]
    assert len(set(styles)) == len(styles)


def test_zero_bytes_have_no_place_on_a_logarithmic_axis() -> None:
    found = series("fa2")
    found = replace(found, readings=tuple(replace(r, hbm_warm=(0, 0)) for r in found.readings))
    lines = named(curves.traffic_chart(found, {}, hbm=True))
    assert list(lines["fa2 · measured warm"]["y"]) == [None]


@pytest.mark.parametrize(("source", "shown"), [("recorded", False), ("measured", True)])
def test_a_line_without_points_is_named_only_while_it_waits(source: str, shown: bool) -> None:
    found = series("fa2", "flex")
    readings = [
        replace(r, hbm_cold=(300, 40)) if r.implementation == "fa2" else r for r in found.readings
    ]
    found = replace(found, readings=tuple(readings), source=source)
    lines = named(curves.traffic_chart(found, {}, hbm=True))
    cold = CHART["cold"].format(source=source).removeprefix("recorded ")
    assert f"fa2 · {cold}" in lines
    assert (f"flex · {cold}" in lines) == shown
    # Two lines of one recorded implementation share a name; under the title stands which is which.
    assert any(name.endswith("warm") for name in lines) == shown


def test_what_was_recorded_says_so_and_where() -> None:
    figure = curves.time_chart(replace(series(), source="recorded"))
    assert set(named(figure)) == {"naive", "fa2"}
    under = figure.to_dict()["layout"]["title"]["subtitle"]["text"]
    assert under.startswith("recorded on one a played machine<br>")
    assert "played" not in str(curves.time_chart(series()).to_dict()["layout"]["title"])


@pytest.mark.parametrize("chart", CHARTS)
def test_a_sweep_that_has_not_begun_is_drawn_empty(chart: str) -> None:
    empty = Series("tokens", TOKENS, tuple(Reading(problem(tokens), "fa2") for tokens in TOKENS))
    figure = CHARTS[chart](empty).to_dict()
    assert figure["layout"]["annotations"][0]["text"] == CHART["empty"]
    assert not laws(CHARTS[chart](empty))


def test_the_x_axis_does_not_move_while_points_come_in() -> None:
    full = series()
    ranges = {
        tuple(curves.time_chart(part).to_dict()["layout"]["xaxis"]["range"])
        for count in range(len(full.readings) + 1)
        for part in [
            replace(
                full,
                readings=tuple(
                    r if i < count else Reading(r.problem, r.implementation)
                    for i, r in enumerate(full.readings)
                ),
            )
        ]
    }
    assert len(ranges) == 1


# --- the roofline -----------------------------------------------------------------------------------


def test_the_roof_bends_at_the_ridge() -> None:
    roof = Roof(4e12, 8e14, "measured")
    assert roof.ridge == 200
    assert roof.at(100) == 4e14
    assert roof.at(1000) == 8e14


def test_a_kernel_stands_where_its_bytes_and_its_time_put_it() -> None:
    found = series("fa2")
    figure = roofline(found, lambda reading: (1000, "formula"), Roof(4e12, 8e14, "measured"))
    dots = named(figure)["fa2 · formula"]
    for reading, x, y in zip(found.of("fa2"), dots["x"], dots["y"], strict=True):
        flop = 4 * 6 * reading.problem.queries**2 * 64
        assert x == pytest.approx(flop / 1000)
        assert y == pytest.approx(flop / (reading.time_us * 1e-6))
    traces = figure.to_dict()["data"]
    assert all(trace["cliponaxis"] is False for trace in traces if trace["mode"] == "text")
    text = str(traces)
    assert "4 TB/s · measured" in text
    assert "800 TFLOP/s · measured" in text


def test_bytes_from_two_sources_are_two_lines() -> None:
    found = series("fa2")
    moved = {257: (1000, "formula"), 1370: (900, "measured cold")}
    figure = roofline(found, lambda reading: moved.get(reading.problem.queries), None)
    lines = named(figure)
    assert {name: line["marker"]["symbol"] for name, line in lines.items()} == {
        "fa2 · formula": "circle-open",
        "fa2 · measured cold": "circle",
    }
    alone = named(roofline(found, lambda reading: (1000, "formula"), None))
    assert alone["fa2 · formula"]["marker"]["symbol"] == "circle"
    recorded = {257: (1000, "formula"), 1370: (900, "recorded cold")}
    found = replace(found, source="recorded")
    figure = roofline(found, lambda reading: recorded.get(reading.problem.queries), None)
    assert list(named(figure)) == ["fa2 · cold"]
    assert len(figure.to_dict()["data"]) == 2


# --- the table --------------------------------------------------------------------------------------


def test_the_table_has_each_figure_with_its_unit_and_source() -> None:
    found = series()
    first = found.readings[1]
    assert first.implementation == "fa2"
    row = rows(found, {(first.problem, "fa2", "forward"): 1234567})[1]
    assert row[TABLE["time_us"]] == first.time_us
    assert row[TABLE["time_source"]] == "measured, torch's benchmark"
    assert row[TABLE["peak_mb"]] == first.peak_bytes / 1e6
    assert row[TABLE["formula_mb"]] == 1.234567
    assert row[TABLE["counted_mb"]] == sum(first.counted) / 1e6
    assert row[TABLE["cold_read_mb"]] is None


def test_the_file_is_the_table_with_its_origin() -> None:
    found = with_refusal(series(), "naive", 21905)
    table = rows(found, {})
    columns = filled(table)
    assert TABLE["cold_read_mb"] not in columns
    lines = list(csv.reader(io.StringIO(as_csv(table, columns, found).decode())))
    assert lines[0] == [*columns, "machine", "versions", "date"]
    assert len(lines) == 1 + len(found.readings)
    assert lines[1][-3:] == ["a played machine", "torch 1", "2026-11-30 12:00"]
    for row, line in zip(table, lines[1:], strict=True):
        assert line[:-3] == ["" if row[name] is None else str(row[name]) for name in columns]
    assert CROSS in lines[7]


# --- looks and words --------------------------------------------------------------------------------


def test_no_two_implementations_need_colour_to_be_told_apart() -> None:
    assert set(look.LOOKS) == set(IMPLEMENTATIONS)
    symbols = [one.symbol for one in look.LOOKS.values()]
    assert len(set(symbols)) == len(symbols)
    assert "x" not in symbols, "a cross marks what could not be run"
    for one, other in itertools.combinations(look.LOOKS.values(), 2):
        assert (one.colour, one.dash) != (other.colour, other.dash)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize(
    "colour", sorted({one.colour for one in look.LOOKS.values()} | {look.GREY})
)
def test_lines_stand_out_from_both_pages(mode: str, colour: str) -> None:
    assert contrast(colour, THEME[mode]["backgroundColor"]) >= 3
    assert int(colour[1:], 16) > 0x40, "Streamlit replaces these colours"


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [
        (1370.0, units.BYTES, "1.37 kB"),
        (999.9, units.BYTES, "1 kB"),
        (75e9, units.BYTES, "75 GB"),
        (13.5, units.TIME_US, "13.5 µs"),
        (1558.0, units.TIME_US, "1.56 ms"),
        (4.2e6, units.TIME_US, "4.2 s"),
        (4.73e14, units.RATE, "473 TFLOP/s"),
        (0.25, units.TIME_US, "250 ns"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(
    value: float, scale: units.Units, expected: str
) -> None:
    assert units.in_unit(value, scale) == expected


def test_decades_hold_all_values() -> None:
    assert logs.decades_around([13.5, 49_669.0]) == (1, 5)
    assert logs.decades_around([100.0]) == (2, 3)
    assert logs.decades_around([]) == (0, 3)
    places, words = logs.decade_ticks((0, 12), units.TIME_US)
    assert len(places) <= logs.MOST_TICKS
    assert words[0] == "1 µs"


def test_labels_under_an_axis_leave_each_other_room_on_a_phone() -> None:
    assert logs.spaced_labels([257, 577, 1370, 5477, 12101, 21905]) == [
        "257", "577", "1,370", "5,477", "", "21,905",
    ]  # fmt: skip
    assert logs.spaced_labels([1, 2, 3, 4, 5, 6, 8]) == ["1", "2", "3", "", "5", "", "8"]
    assert logs.spaced_labels([197]) == ["197"]
    assert logs.spaced_labels([]) == []
