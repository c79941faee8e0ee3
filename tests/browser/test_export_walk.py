"""The exported page from the disk: it plays without a server and asks for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.export_walk import as_html
from app.origin import Origin
from tests.browser.player_cases import CASES, player_data

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ORIGIN = Origin("Cat", "DINOv2 small", 11, 2, "torch 2, Triton 3", "2026-11-30")
PLAYER = ".tile-player"
PLAYGROUND = "tests/browser/player_playground.py"


@pytest.fixture
def open_file(browser, tmp_path: Path) -> Iterator[Callable]:
    """Save a case's page and open it from the disk; an error or a request fails the test."""
    errors: list[str] = []
    asked: list[str] = []
    contexts = []

    def start(name: str, step: int = 0, row: int = 0, width: int = 1440, scheme: str = "light"):
        file = tmp_path / f"{name}.html"
        file.write_bytes(as_html(player_data(CASES[name], step, row), ORIGIN))
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.locator(f"{PLAYER}[data-picture=drawn]").wait_for(timeout=20_000)
        return page

    yield start
    for context in contexts:
        context.close()
    assert errors == []
    assert {url.partition(":")[0] for url in asked} == {"file"}
    assert len(asked) == len(contexts)


def wait_for_step(page, step: int) -> None:
    page.locator(f'{PLAYER}[data-step="{step}"]').wait_for(timeout=10_000)


def told(page) -> list[str]:
    """All that the player says of the step: sentence, formulas, numbers, bytes."""
    page.wait_for_timeout(300)
    texts = page.locator(f"{PLAYER} :is(p, dd, dt, td, th, h3)").all_inner_texts()
    return [text.strip() for text in texts if text.strip()]


@pytest.mark.parametrize("name", ["small", "broken"])
def test_the_last_step_is_the_one_that_the_app_shows(open_file, browser, streamlit_server, name):
    last = len(player_data(CASES[name]).walk.steps) - 1
    offline = open_file(name, step=1)
    wait_for_step(offline, 1)
    offline.locator(PLAYER).focus()
    offline.keyboard.press("End")
    wait_for_step(offline, last)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    online = context.new_page()
    online.goto(f"{streamlit_server(PLAYGROUND)}/?case={name}")
    online.locator(f"{PLAYER}[data-picture=drawn]").wait_for(timeout=30_000)
    online.locator(PLAYER).focus()
    online.keyboard.press("End")
    wait_for_step(online, last)
    shown = told(offline)
    assert shown == told(online)
    assert len(shown) > 20
    context.close()


def test_it_opens_at_the_step_and_row_and_goes_by_keys(open_file):
    page = open_file("small", step=3, row=4)
    wait_for_step(page, 3)
    assert page.locator(PLAYER).get_attribute("data-row") == "4"
    page.locator(PLAYER).focus()
    page.keyboard.press("Home")
    wait_for_step(page, 0)
    page.keyboard.press("ArrowRight")
    wait_for_step(page, 1)
    page.keyboard.press(" ")
    page.locator(f'{PLAYER}[data-playing="true"]').wait_for()
    wait_for_step(page, 2)


@pytest.mark.parametrize(
    ("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 27)")]
)
def test_light_and_dark_follow_the_system_on_a_phone_too(open_file, scheme, ground):
    page = open_file("fa2", width=390, scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    foot = page.locator("footer").inner_text()
    assert "layer 11, head 2" in foot
    assert "2026-11-30" in foot


def test_a_large_picture_still_opens(open_file):
    page = open_file("large")
    page.locator(PLAYER).focus()
    page.keyboard.press("End")
    wait_for_step(page, 85)
