"""The page Speed and memory in a real browser: real sweeps on this machine, stopped and in turn."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from app.text.speed import RUN, TABLE

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LOADED_MS, MEASURED_MS = 60_000, 180_000
SHORT = "over=tokens&tokens=1370&heads=1&numbers=float32&with=eager,torch-cpu-flash&hbm=0"
LONG = "over=tokens&tokens=5477&heads=12&batch=2&numbers=float32&with=eager,torch-cpu-flash&hbm=0"
LIVE = '[class*="st-key-live-time"]'
WORKER = "kernels.bench.live"


@pytest.fixture
def visit(browser, streamlit_server) -> Callable:
    """Open the page as a new visitor, and close all at the end."""
    contexts = []

    def open_page(query: str = SHORT, width: int = 1440, scheme: str = "light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{streamlit_server('app/main.py')}/speed?{query}")
        page.wait_for_selector(f"{LIVE} .main-svg", timeout=LOADED_MS)
        return page

    yield open_page
    for context in contexts:
        context.close()


def start(page) -> None:
    page.locator(".st-key-sweep-start button:not([disabled])").click()
    page.locator(".st-key-sweep-stop button").wait_for()


def stop(page) -> None:
    page.locator(".st-key-sweep-stop button").click()


def choose(page, field: str, option: str) -> None:
    """Take an option of one of the lists."""
    page.locator(f".st-key-sweep-{field} input").click()
    page.get_by_role("option", name=option, exact=True).click()
    name = f"{field}={option.partition(' ')[0].replace(',', '')}"
    page.wait_for_function("name => location.search.includes(name)", arg=name)


def count(page) -> int:
    """Points of time that are drawn; Streamlit hides a chart's last picture before it takes it away."""
    return page.locator(f"{LIVE} .points path").filter(visible=True).count()


def wait_for_points(page, least: int) -> None:
    end = time.monotonic() + MEASURED_MS / 1000
    while count(page) < least:
        assert time.monotonic() < end, f"fewer than {least} points"
        page.wait_for_timeout(200)


def wait_for(page, sentence: str, timeout: int = MEASURED_MS) -> None:
    page.get_by_text(sentence).first.wait_for(timeout=timeout)


def workers() -> list[psutil.Process]:
    """Measuring processes that the servers of these tests have started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if WORKER in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def address(page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_a_sweep_is_run_stopped_half_way_and_another_one_started(visit) -> None:
    page = visit(LONG)
    start(page)
    wait_for_points(page, 2)
    assert workers()
    stop(page)
    wait_for(page, "Stopped.", timeout=10_000)
    assert not workers(), "the measuring process has gone"
    assert 2 <= count(page) < 10, "what was measured is kept, and it was half-way"
    choose(page, "tokens", "1,370 · 518 px")
    choose(page, "heads", "1")
    start(page)
    wait_for(page, RUN["done"].format(done=6, count=6))
    assert count(page) == 6
    assert not workers()


def test_two_visitors_measure_in_turn_and_are_told(visit) -> None:
    first = visit(LONG)
    start(first)
    wait_for_points(first, 1)
    second = visit(SHORT)
    start(second)
    wait_for(second, RUN["waiting_one"], timeout=20_000)
    assert len(workers()) == 1
    stop(first)
    wait_for(first, "Stopped.", timeout=10_000)
    wait_for(second, RUN["done"].format(done=6, count=6))


def test_who_waits_can_leave_the_line(visit) -> None:
    first, second = visit(LONG), visit(SHORT)
    start(first)
    start(second)
    wait_for(second, RUN["waiting_one"], timeout=20_000)
    stop(second)
    wait_for(second, "Stopped.", timeout=10_000)
    assert first.locator(".st-key-sweep-stop button").count() == 1
    stop(first)
    wait_for(first, "Stopped.", timeout=10_000)


def test_a_link_brings_the_choices_back_and_survives_the_panel(visit) -> None:
    page = visit(
        "over=heads&heads=12&tokens=577&width=32&numbers=float16&with=eager&picture=rocket"
    )
    page.wait_for_function("() => location.search.includes('try=')")
    found = address(page)
    assert (found["over"], found["heads"], found["tokens"]) == ("heads", "12", "577")
    assert (found["width"], found["numbers"], found["with"]) == ("32", "float16", "eager")
    assert found["picture"] == "rocket"


def test_the_table_can_be_downloaded(visit) -> None:
    page = visit(SHORT)
    with page.expect_download() as started:
        page.locator(".st-key-live-csv button").filter(visible=True).click()
    assert started.value.suggested_filename == "flashlens-live-over-tokens.csv"
    with started.value.path().open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6
    assert {TABLE["machine"], TABLE["versions"], TABLE["when"]} <= lines[0].keys()


def test_a_chart_is_saved_as_a_sharp_picture(visit) -> None:
    page = visit(SHORT)
    chart = page.locator(LIVE)
    chart.hover()
    with page.expect_download() as started:
        chart.locator('.modebar-btn[data-title*="PNG" i]').click()
    assert started.value.suggested_filename == "flashlens-live-time-over-tokens.png"


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_window(visit, width: int) -> None:
    page = visit(SHORT, width=width)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    block = page.get_by_test_id("stMainBlockContainer")
    assert block.evaluate("block => block.scrollWidth <= block.clientWidth")


def test_charts_stand_two_by_two_and_under_each_other_on_a_phone(visit) -> None:
    def places(page) -> list[dict]:
        kinds = ("time", "rate", "memory", "traffic")
        return [page.locator(f'[class*="st-key-live-{kind}"]').bounding_box() for kind in kinds]

    time_box, rate_box, memory_box, _ = places(visit(SHORT))
    assert abs(time_box["y"] - rate_box["y"]) < 2
    assert time_box["x"] + time_box["width"] <= rate_box["x"] + 1
    assert memory_box["y"] > time_box["y"] + 300
    narrow = places(visit(SHORT, width=390))
    assert len({round(box["x"]) for box in narrow}) == 1
