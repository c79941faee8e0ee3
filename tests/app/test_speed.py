"""The page Speed and memory with a played line of measurements; a real sweep is tests/browser's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from app.controls import sweep as choices
from app.controls import sweep_recorded, sweep_run
from app.jobs import Job
from app.state_speed import IN_ADDRESS, ON_CPU, ON_GPU
from app.text.speed import CHART, HOW, RECORDED, RUN, SWEEP
from kernels import Problem
from kernels.traffic.roofs import Roofs
from tests.app.played_jobs import PlayedJobs
from tests.app.played_sweep import measure, refuse

Open = Callable[..., AppTest]
pytestmark = [pytest.mark.slow]

SMALL = {"tokens": "1370", "with": "eager,torch-cpu-flash"}


def only_the_page() -> None:
    """What AppTest runs: the view, without the frame and its panel."""
    from app.guard import guarded
    from app.views import speed

    guarded(speed.page)()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> PlayedJobs:
    played = PlayedJobs()
    monkeypatch.setattr(sweep_run, "jobs", lambda: played)
    return played


@pytest.fixture
def open_page(line: PlayedJobs) -> Open:
    """The page for a new visitor, with an address."""

    def opened(**params: str) -> AppTest:
        page = AppTest.from_function(only_the_page, default_timeout=60)
        for name, value in (SMALL | params).items():
            page.query_params[name] = value
        return page.run()

    return opened


def start(page: AppTest, line: PlayedJobs) -> Job:
    page.button(key="sweep-start").click().run()
    assert not page.exception
    return line.started[-1]


def charts(page: AppTest) -> dict[str, dict]:
    """title -> figure, of the live charts."""
    figures = [json.loads(chart.proto.spec) for chart in page.get("plotly_chart")]
    found: dict[str, dict] = {}
    for figure in figures:
        found.setdefault(figure["layout"]["title"]["text"], figure)
    return found


def names(figure: dict) -> list[str]:
    return [trace["name"] for trace in figure["data"] if trace.get("showlegend", True)]


def words(page: AppTest) -> str:
    parts = [*page.caption, *page.markdown, *page.info, *page.success, *page.error, *page.warning]
    return "\n".join(part.value for part in parts)


def buttons(page: AppTest) -> dict[str, bool]:
    """key -> can be pressed"""
    return {button.key: not button.disabled for button in page.button}


def address(page: AppTest) -> dict[str, str]:
    params = page.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in params}


def test_before_anything_is_measured_formulas_stand_there(open_page: Open) -> None:
    page = open_page(**{"with": "eager,fa2"})
    assert not page.exception
    found = charts(page)
    assert found[CHART["time"]]["layout"]["annotations"][0]["text"] == CHART["empty"]
    assert f"fa2 · {CHART['formula']}" in names(found[CHART["traffic"]])
    assert buttons(page) == {"sweep-start": True}


def test_how_much_there_is_to_do_is_told(open_page: Open) -> None:
    told = RUN["to_do"].format(sizes=3, names=2, count=6)
    assert told in words(open_page())
    assert "Counting bytes takes about" in words(open_page(**{"with": "naive,fa2"}))
    assert "Counting bytes takes about" not in words(open_page())


def test_who_cannot_be_timed_here_is_not_counted_and_has_no_line(
    open_page: Open, line: PlayedJobs
) -> None:
    page = open_page(**{"with": "eager,naive,fa2"})
    assert RUN["to_do"].format(sizes=3, names=1, count=3) in words(page)
    for title in ("time", "rate", "memory"):
        assert names(charts(page)[CHART[title]]) == [f"eager · {CHART['measured']}"]
    job = start(page, line)
    measure(job, 0, 1)
    page.run()
    page.button(key="sweep-stop").click().run()
    assert RUN["stopped"].format(done=1, count=3) in words(page)


def test_a_sweep_of_bytes_alone_says_so(open_page: Open) -> None:
    assert RUN["bytes_only"].format(sizes=3) in words(open_page(**{"with": "naive,fa2"}))


def test_start_asks_for_what_is_chosen(open_page: Open, line: PlayedJobs) -> None:
    page = open_page(**{"with": "eager,fa2", "pass": "forward+backward", "causal": "1", "try": "1"})
    request = start(page, line).request
    assert (request.kind, request.roofs, request.try_anyway) == ("sweep", True, True)
    assert request.wants == ("time", "memory", "counted")
    assert [(p.queries, name, way) for p, name, way in request.entries] == [
        (tokens, name, "forward+backward")
        for tokens in (257, 577, 1370)
        for name in ("eager", "fa2")
    ]
    assert all(p.causal and p.dtype == "float32" for p, _, _ in request.entries)


def test_points_come_in_while_it_runs(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    job = start(page, line)
    measure(job, 0, 3)
    page.run()
    assert buttons(page) == {"sweep-start": False, "sweep-stop": True}
    time = charts(page)[CHART["time"]]
    drawn = {trace["name"]: trace for trace in time["data"]}
    assert "eager · measured" in drawn
    assert "Timing 3" in str(page.get("progress")[0].proto)


def test_stop_stops_and_keeps_what_was_measured(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    job = start(page, line)
    measure(job, 0, 3)
    page.run()
    page.button(key="sweep-stop").click().run()
    assert job.state == "stopped"
    assert RUN["stopped"].format(done=3, count=6) in words(page)
    assert buttons(page) == {"sweep-start": True}
    assert not charts(page)[CHART["time"]]["layout"].get("annotations")
    other = start(page, line)
    assert other is not job
    assert other.state == "running"


def test_the_place_in_the_line_is_told(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    job = start(page, line)
    job.show(state="waiting")
    for ahead, sentence in ((1, RUN["waiting_one"]), (3, RUN["waiting"].format(ahead=3))):
        line.ahead = ahead
        page.run()
        assert sentence in str(page.get("progress")[0].proto)
    assert buttons(page)["sweep-stop"]


def test_when_it_is_done_the_roofs_stand_there(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    assert HOW["no_roofs_live"] in words(page)
    job = start(page, line)
    measure(job, 0, 6)
    refuse(job, 4, "eager needs 75 GB here; this machine has 24 GB free.")
    job.show(state="done", roofs=Roofs(2e10, 9e10, "float32", "played", "2026-11-30"))
    page.run()
    assert RUN["done"].format(done=5, count=6) in words(page)
    assert HOW["no_roofs_live"] not in words(page)
    assert "20 GB/s · measured" in json.dumps(charts(page)[CHART["roofline"]], ensure_ascii=False)
    crosses = [
        trace
        for trace in charts(page)[CHART["time"]]["data"]
        if trace.get("marker", {}).get("symbol") == "x"
    ]
    assert [list(trace["x"]) for trace in crosses] == [[1370]]


def test_a_failure_is_its_sentence(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    job = start(page, line)
    job.show(state="failed", trouble="The measuring process ended; press Start to try again.")
    page.run()
    assert "The measuring process ended" in words(page)
    assert buttons(page) == {"sweep-start": True}
    assert not page.exception


def test_other_work_meanwhile_is_told(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    job = start(page, line)
    measure(job, 0, 6, busy=True)
    job.show(state="done")
    assert RUN["busy"] in words(page.run())


def test_what_will_not_fit_is_said_before(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_run, "available_bytes", lambda device: 30_000_000)
    told = words(open_page())
    assert "eager from 1,370 tokens on: eager needs" in told
    assert RUN["left_out"] in told
    assert RUN["tried"] in words(open_page(**{"try": "1"}))


def test_choices_go_into_the_address(open_page: Open) -> None:
    page = open_page(picture="coffee")
    page.selectbox(key="sweep-dtype").set_value("bfloat16").run()
    page.toggle(key="sweep-causal").set_value(True).run()
    page.selectbox(key="sweep-over").set_value("heads").run()
    assert not page.exception
    found = address(page)
    assert (found["numbers"], found["causal"], found["over"]) == ("bfloat16", "1", "heads")
    assert found["picture"] == "coffee"
    assert {*IN_ADDRESS.values()} <= found.keys()
    assert len(charts(page)) == 5


def test_nobody_to_measure_is_refused(open_page: Open) -> None:
    page = open_page()
    page.button_group(key="sweep-implementations").set_value([]).run()
    assert SWEEP["no_implementation"] in words(page)
    assert address(page)["with"] == SMALL["with"]


def test_a_bad_link_is_told_once(open_page: Open) -> None:
    page = open_page(numbers="float64")
    assert SWEEP["bad_link"].format(name="numbers") in words(page)
    assert address(page)["numbers"] == ON_CPU.dtype
    assert SWEEP["bad_link"].format(name="numbers") not in words(page.run())


def test_who_cannot_run_here_says_why(open_page: Open) -> None:
    page = open_page(**{"with": "eager,flash-attn-3"})
    reason = choices.not_here(choices.Sweep(tokens=1370))["flash-attn-3"]
    assert reason in words(page)
    assert not page.exception


def test_the_record_stands_in_its_own_charts(open_page: Open) -> None:
    page = open_page()
    titles = [expander.label for expander in page.expander]
    assert RECORDED["title"].format(machine="NVIDIA H200") in titles
    figures = [json.loads(chart.proto.spec) for chart in page.get("plotly_chart")]
    live, record = figures[:5], figures[5:]
    assert len(record) == 5
    assert "recorded" not in str([names(figure) for figure in live])
    assert "measured ·" not in str([names(figure) for figure in record])
    for figure in record:
        assert CHART["recorded"] in figure["layout"]["title"]["subtitle"]["text"]
        assert not any(CHART["recorded"] in name for name in names(figure))


def test_a_pass_whose_bytes_were_not_recorded_says_so(open_page: Open) -> None:
    page = open_page()
    assert HOW["roofline_gpu"] in words(page)
    page.segmented_control(key=sweep_recorded.DIRECTION).set_value("forward+backward").run()
    figures = [json.loads(chart.proto.spec) for chart in page.get("plotly_chart")]
    *_, traffic, roofline = figures
    assert traffic["layout"]["annotations"][0]["text"] == CHART["not_recorded"]
    assert names(roofline)
    assert HOW["roofline_formula"] in words(page)
    assert HOW["roofline_gpu"] not in words(page)


def test_without_a_record_that_is_said(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_recorded, "readings", tuple)
    assert RECORDED["none"] in words(open_page())


def test_on_a_gpu_its_counters_are_asked_for(
    open_page: Open, line: PlayedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "on_gpu", lambda: True)
    page = open_page(hbm="1", **{"with": "naive,fa2"})
    job = start(page, line)
    assert job.request.wants == ("time", "memory", "counted", "hbm")
    measure(job, 0, 6, hbm_cold=(5_000_000, 1_000_000), hbm_warm=(900_000, 10))
    job.show(state="done")
    page.run()
    found = names(charts(page)[CHART["traffic"]])
    for source in ("formula", "counted", "measured cold", "measured warm"):
        assert f"fa2 · {source}" in found
    assert "fa2 · measured cold" in names(charts(page)[CHART["roofline"]])


@pytest.mark.parametrize("why_not_fa3", [None, "fa3 needs Hopper."])
def test_a_gpu_begins_with_what_it_can_run(
    why_not_fa3: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def here(problem: Problem) -> dict[str, str | None]:
        asked.append(problem)
        return dict.fromkeys(ON_GPU.implementations) | {"fa3": why_not_fa3}

    monkeypatch.setattr(choices, "on_gpu", lambda: True)
    monkeypatch.setattr(choices, "implementations", here)
    assert ("fa3" in choices.usual().implementations) == (why_not_fa3 is None)
    assert {"naive", "fa2"} < set(choices.usual().implementations)
    assert {problem.dtype for problem in asked} == {"bfloat16"}  # fa3 has no float32


def test_what_was_measured_here_before_is_shown_at_once(open_page: Open, line: PlayedJobs) -> None:
    page = open_page()
    job = start(page, line)
    measure(job, 0, 6)
    job.show(state="done")
    other = open_page()
    assert not charts(other)[CHART["time"]]["layout"].get("annotations")
