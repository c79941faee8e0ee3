"""The side panel on the page: with a played line of measurements, and once with the real one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from streamlit.testing.v1 import AppTest

from app import compute
from app.controls import cost, cost_known
from app.text.cost import CHIP, PANEL, ROW, WORK
from tests.app.played_jobs import PlayedJobs, fill

Visit = Callable[..., AppTest]
pytestmark = [pytest.mark.usefixtures("fresh_server"), pytest.mark.slow]
MEASURE, STOP, TRY, COMPARE = "cost measure", "cost stop", "cost try", "cost compare"
FOUR = ("naive", "fa2", "eager", "torch-cpu-flash")


@pytest.fixture
def jobs(fresh_server: None, monkeypatch: pytest.MonkeyPatch) -> PlayedJobs:
    """All visitors' measurements, played."""
    monkeypatch.setattr(compute, "Jobs", PlayedJobs)
    found = compute.shared().jobs
    assert isinstance(found, PlayedJobs)
    return found


def html(page: AppTest) -> str:
    assert not page.exception
    return "\n".join(block.proto.body for block in page.get("html"))


def words(page: AppTest) -> str:
    return re.sub(r"<[^>]*>", " ", html(page).replace("</style>", "</style>\n"))


def keys(page: AppTest) -> set[str | None]:
    return {button.key for button in page.button}


def address(page: AppTest) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else value[0]
        for name, value in page.query_params.items()
    }


def test_the_formula_stands_there_at_once(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    assert PANEL["subject"].format(tokens="177", heads=6, dtype="float32") in words(page)
    assert html(page).count("<summary>formula</summary>") == 2
    assert words(page).count(ROW["unmeasured"]) == 4
    assert CHIP["title"] in words(page)
    assert MEASURE in keys(page)
    assert jobs.started == []


def test_a_measurement_comes_in_and_ends(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    page.button(key=MEASURE).click().run()
    (job,) = jobs.started
    assert tuple(entry[1] for entry in job.request.entries) == FOUR
    assert job.request.entries[0][0].queries == 177
    assert (STOP in keys(page), MEASURE in keys(page)) == (True, False)
    job.show(sentence="Timing eager, 2 of 9.")
    fill(job, "eager", time_us=18_000.0, samples=9, timed_by="benchmark", machine="CPU, mine")
    page.run()
    assert "Timing eager, 2 of 9." in words(page)
    assert "18.0 ms" in words(page)
    assert "On CPU, mine." in words(page)
    job.finish("done")
    page.run()
    assert MEASURE in keys(page)
    assert "Timing eager" not in words(page)
    assert "18.0 ms" in words(visit()), "other visitors see what is known here"


def test_who_is_second_is_told(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    jobs.ahead = 1
    page.button(key=MEASURE).click().run()
    assert WORK["one_ahead"] in words(page)


def test_stopped_and_failed_have_their_sentence(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    page.button(key=MEASURE).click().run()
    page.button(key=STOP).click().run()
    assert jobs.started[0].state == "stopped"
    assert WORK["stopped"] in words(page)
    page.button(key=MEASURE).click().run()
    jobs.started[1].finish("failed", "The process was killed; choose a smaller size.")
    assert "The process was killed" in words(page.run())
    assert MEASURE in keys(page)


def test_what_will_not_fit_is_said_before_and_tried_on_request(
    visit: Visit, jobs: PlayedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TRY not in keys(visit())
    monkeypatch.setattr(cost_known, "available_bytes", lambda device: 1_500_000)
    page = visit()
    assert words(page).count("eager needs") == 2
    page.button(key=TRY).click().run()
    assert jobs.started[0].request.try_anyway
    page.button(key=STOP).click().run()
    page.button(key=MEASURE).click().run()
    assert not jobs.started[1].request.try_anyway


def test_the_choice_of_two_lives_in_the_address(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    assert "compare" not in address(page)
    page.multiselect(key=COMPARE).set_value(["fa1", "fa2"]).run()
    assert address(page)["compare"] == "fa1,fa2"
    assert "fa1 asks for" in words(page)
    page.multiselect(key=COMPARE).set_value(["fa1"]).run()
    assert address(page)["compare"] == "fa1,fa2"
    assert page.multiselect(key=COMPARE).value == ["fa1", "fa2"]
    page.multiselect(key=COMPARE).set_value(list(FOUR)).run()
    assert "compare" not in address(page)
    again = visit(compare="eager,torch-cpu-flash")
    assert address(again)["compare"] == "eager,torch-cpu-flash"
    assert not html(again).count("<summary>formula</summary>")


def test_another_size_begins_with_what_auto_takes_there(
    visit: Visit, jobs: PlayedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a choice that is what it begins with anyway is not written into the address."""

    def taken(problem, device) -> str:
        return "fa1" if problem.queries < 200 else "fa2"

    def auto(problem, device) -> tuple[str, ...]:
        return "naive", taken(problem, device)

    monkeypatch.setattr(cost, "usual", auto)
    page = visit()
    assert page.multiselect(key=COMPARE).value == ["naive", "fa1"]
    page.multiselect(key=COMPARE).set_value(["naive", "fa1", "fa2"]).run()
    assert address(page)["compare"] == "naive,fa1,fa2"
    page.multiselect(key=COMPARE).set_value(["naive", "fa1"]).run()
    assert "compare" not in address(page)
    page.selectbox(key="size").set_value(518).run()
    assert page.multiselect(key=COMPARE).value == ["naive", "fa2"]
    page.button(key=MEASURE).click().run()
    assert [entry[1] for entry in jobs.started[0].request.entries] == ["naive", "fa2"]


def test_another_size_has_its_own_figures(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    page.button(key=MEASURE).click().run()
    jobs.started[0].show(sentence="Timing eager.")
    fill(jobs.started[0], "eager", time_us=18_000.0)
    page.selectbox(key="size").set_value(518).run()
    assert "At 177 tokens: Timing eager." in words(page)
    assert "18.0 ms" not in words(page)
    assert STOP in keys(page)


def test_the_state_is_kept_when_a_page_change_empties_the_address(
    visit: Visit, jobs: PlayedJobs
) -> None:
    page = visit(picture="rocket", layer="3", query="4,6", compare="fa1,fa2")
    before = address(page)
    page.query_params.clear()
    page.run()
    assert address(page) == before
    for name in before:
        if name != "layer":
            del page.query_params[name]
    page.query_params["layer"] = "5"
    page.run()
    assert (address(page)["layer"], address(page)["picture"]) == ("5", "cat"), "a link stands alone"


@pytest.fixture
def no_leftovers(fresh_server: None) -> Iterator[None]:
    yield
    for job in list(compute.shared().jobs._latest.values()):
        job.stop()


def test_the_real_line_measures_on_a_cpu(visit: Visit, no_leftovers: None) -> None:
    if compute.device().type != "cpu":
        pytest.skip("on a GPU the lead's check measures")
    page = visit(compare="eager,torch-cpu-flash")
    page.button(key=MEASURE).click().run()
    end = time.monotonic() + 120
    while STOP in keys(page.run()) and time.monotonic() < end:
        time.sleep(0.5)
    assert html(page).count("<summary>measured</summary>") == 4
    assert "On CPU" in words(page)


def test_no_name_of_a_session_is_on_the_page(visit: Visit, jobs: PlayedJobs) -> None:
    page = visit()
    page.button(key=MEASURE).click().run()
    (owner, _) = next(iter(jobs._latest))
    assert owner not in html(page) + str(address(page))
