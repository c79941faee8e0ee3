"""The page Tiles in a real browser: from a head to its walk, played, stepped, linked, broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
import torch

from app.samples import SAMPLES
from app.text.tiles import LINK
from vit import load_image, load_model
from vit.trace import Trace

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLAYER = ".tile-player[data-step][data-picture='drawn']"
IDLE = '.stApp[data-test-script-state="notRunning"]'
FIRST_TRACE_MS, SOON_MS = 120_000, 15_000
SMALL = "side=224&tile=32x32&query=4,6&layer=7&head=3"
STEPS = 6  # 177 tokens in tiles of 32
LARGEST_ANSWER_BYTES = 20_000
"""Of the server to a step: far below the walk itself, which is not sent again."""


class Tiles:
    """One open page, and how a test reads it."""

    def __init__(self, page) -> None:
        self.page = page
        self.root = page.locator(".tile-player")

    def settle(self, **marks: str | int) -> None:
        """Until the player carries these marks and the server has answered."""
        wanted = "".join(f"[data-{name}='{value}']" for name, value in marks.items())
        self.page.locator(PLAYER + wanted).wait_for(timeout=FIRST_TRACE_MS)
        self.page.wait_for_selector(IDLE, state="attached", timeout=FIRST_TRACE_MS)

    def address(self) -> dict[str, str]:
        query = urlsplit(self.page.url).query
        return {name: values[0] for name, values in parse_qs(query).items()}

    def wait_for_address(self, text: str) -> None:
        self.page.wait_for_function(
            "text => location.search.includes(text)", arg=text, timeout=SOON_MS
        )

    def number(self, name: str, column: int = 0) -> float:
        """A number of the followed row's table, as the script holds it."""
        cell = self.root.locator(f".numbers tr[data-name='{name}'] td").nth(column)
        return float(cell.get_attribute("data-value").replace("Infinity", "inf"))

    def said(self) -> str:
        """All that the player says about the step it is at."""
        names = (".numbers table", ".formulas", ".sentence", ".moved")
        return "\n".join(self.root.locator(name).inner_text() for name in names)


@pytest.fixture
def visit(browser, streamlit_server) -> Iterator[Callable[..., Tiles]]:
    """Open the page as a new visitor, wait until the walk stands there, and close all at the end."""
    contexts, errors = [], []

    def open_page(query: str = SMALL, path: str = "tiles", width: int = 1440, **more) -> Tiles:
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{streamlit_server('app/main.py')}/{path}?{query}")
        tiles = Tiles(page)
        if path == "tiles":
            tiles.settle()
        return tiles

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="module")
def traced() -> Trace:
    return load_model("dinov2-small").trace(load_image(SAMPLES["cat"].path), side=224)


def test_from_a_clicked_patch_to_its_walk_is_one_click(visit) -> None:
    tiles = visit("picture=rocket&side=224&layer=5&head=4", path="")
    page = tiles.page
    page.wait_for_selector('[data-drawn-seq][data-waiting="false"]', timeout=FIRST_TRACE_MS)
    canvas = page.locator("[data-drawn-seq] canvas[data-rows]")
    box = canvas.bounding_box()
    rows, columns = (int(canvas.get_attribute(f"data-{name}")) for name in ("rows", "columns"))
    x, y = (9.5) * box["width"] / columns, (7.5) * box["height"] / rows
    canvas.click(position={"x": x, "y": y})
    page.wait_for_selector('[data-query="7,9"][data-waiting="false"]')
    tiles.wait_for_address("query=7%2C9")
    page.wait_for_selector(IDLE, state="attached")
    page.get_by_role("link", name=LINK["label"]).filter(visible=True).click()
    tiles.settle()
    found = tiles.address()
    assert urlsplit(page.url).path == "/tiles"
    assert page.get_by_test_id("stMain").evaluate("main => main.scrollTop") == 0
    shared = {name: found[name] for name in ("picture", "side", "layer", "head", "query")}
    assert shared == {
        "picture": "rocket",
        "side": "224",
        "layer": "5",
        "head": "4",
        "query": "7,9",
    }
    token = 1 + 7 * columns + 9
    assert int(tiles.root.get_attribute("data-row")) == token % 64
    first = token // 64 * 64
    assert page.get_by_text(f"queries {first} to").filter(visible=True).count() == 1


def test_played_to_the_end_and_stepped_back_the_numbers_are_the_same(visit) -> None:
    tiles = visit()
    forward = []
    for step in range(STEPS):
        tiles.settle(step=step)
        forward.append(tiles.said())
        tiles.root.press("ArrowRight")
    assert len({*forward}) == STEPS
    tiles.root.press("Home")
    tiles.settle(step=0)
    tiles.root.press("Space")
    tiles.settle(step=STEPS - 1, playing="false")
    for step in reversed(range(STEPS)):
        tiles.settle(step=step)
        assert tiles.said() == forward[step]
        tiles.root.press("ArrowLeft")


@pytest.mark.parametrize("step", [0, 2, 5])
def test_the_numbers_are_float64s(visit, traced: Trace, step: int) -> None:
    tiles = visit(f"{SMALL}&step={step}")
    tiles.settle(step=step)
    token = traced.token((4, 6))
    assert int(tiles.root.get_attribute("data-row")) == token % 32
    part = traced.layers[7]
    q, k = part.q[0, 3, token].double(), part.k[0, 3].double()
    scores = traced.scale * (k @ q)
    start, end = 32 * step, min(32 * (step + 1), traced.tokens)
    old, new = scores[:start], scores[:end]
    old_max = old.max() if step else torch.tensor(-torch.inf)
    expected = {
        "tileMax": scores[start:end].max(),
        "oldMax": old_max,
        "maximum": new.max(),
        "alpha": (old_max - new.max()).exp(),
        "oldSum": (old - old_max).exp().sum() if step else 0.0,
        "added": (scores[start:end] - new.max()).exp().sum(),
        "sum": (new - new.max()).exp().sum(),
    }
    cells = tiles.root.locator(".numbers tr[data-name]")
    shown = [cells.nth(i).get_attribute("data-name") for i in range(cells.count())]
    assert {"tileMax", "maximum", "sum"} <= {*shown} <= {*expected}
    for name in shown:
        assert tiles.number(name) == pytest.approx(float(expected[name]), rel=1e-3, abs=1e-6)


def test_a_link_opens_this_very_step(visit) -> None:
    tiles = visit(f"{SMALL}&walk=fa1&mask=1&queries=4")
    tiles.root.press("ArrowRight")
    tiles.root.press("ArrowRight")
    tiles.root.locator("select").first.select_option(index=5)
    tiles.wait_for_address("row=133")
    tiles.wait_for_address("step=2")
    tiles.settle(step=2, row=5)
    before, link = tiles.said(), tiles.page.url
    fresh = visit(urlsplit(link).query)
    fresh.settle(step=2, row=5)
    assert fresh.said() == before
    assert fresh.page.url == link
    tiles.page.reload()
    tiles.settle(step=2, row=5)
    assert tiles.said() == before


def test_a_step_sends_the_walk_no_second_time(visit) -> None:
    tiles = visit()
    sizes: list[int] = []

    def listen(socket) -> None:
        socket.on("framereceived", lambda frame: sizes.append(len(frame)))

    tiles.page.on("websocket", listen)
    tiles.page.reload()
    tiles.settle(step=0)
    assert max(sizes) > LARGEST_ANSWER_BYTES
    sizes.clear()
    tiles.root.press("End")
    tiles.wait_for_address(f"step={STEPS - 1}")
    tiles.settle(step=STEPS - 1)
    assert 0 < max(sizes) < LARGEST_ANSWER_BYTES


def test_back_goes_to_the_step_before(visit) -> None:
    tiles = visit()
    tiles.root.press("ArrowRight")
    tiles.wait_for_address("step=1")
    tiles.settle(step=1)
    tiles.root.press("End")
    tiles.wait_for_address(f"step={STEPS - 1}")
    tiles.settle(step=STEPS - 1)
    tiles.page.go_back()
    tiles.settle(step=1)


def focus(page) -> str:
    """What has the focus, in words."""
    return page.evaluate(
        "() => { let e = document.activeElement; while (e.shadowRoot?.activeElement)"
        " e = e.shadowRoot.activeElement; return `${e.className} ${e.ariaLabel ?? ''}`; }"
    )


def tab_to(page, words: str) -> None:
    for _ in range(60):
        if words in focus(page):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the Tab key does not reach {words!r}; it ended at {focus(page)!r}")


def test_with_the_keyboard_alone(visit) -> None:
    tiles = visit()
    keyboard = tiles.page.keyboard
    tab_to(tiles.page, "Algorithm")
    keyboard.type("Naive")
    keyboard.press("Enter")
    tiles.wait_for_address("walk=naive")
    tiles.settle()
    tab_to(tiles.page, "tile-player")
    keyboard.press("End")
    last = int(tiles.root.locator(".count").inner_text().split()[-1]) - 1
    assert last > STEPS
    tiles.settle(step=last)
    keyboard.press("ArrowLeft")
    tiles.settle(step=last - 1)
    keyboard.press("Home")
    tiles.settle(step=0)
    keyboard.press("Space")
    tiles.settle(playing="true")
    keyboard.press("Space")
    tiles.settle(playing="false")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_window(visit, width: int, scheme: str) -> None:
    tiles = visit(f"{SMALL}&break=output-not-rescaled", width=width, color_scheme=scheme)
    assert tiles.page.evaluate("document.scrollingElement.scrollWidth") <= width
    block = tiles.page.get_by_test_id("stMainBlockContainer")
    assert block.evaluate("block => block.scrollWidth <= block.clientWidth")
    tiles.page.locator(".st-key-tiles-size button").filter(visible=True).click()
    for keys in (16, 32, 64, 128):
        button = tiles.page.locator(f".st-key-tiles-size-128-{keys} button")
        button.wait_for()
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        label = button.locator("p")
        assert label.evaluate("p => p.scrollWidth <= p.clientWidth"), "no label is cut off"


def test_all_choices_stand_in_one_line(visit) -> None:
    tiles = visit(f"{SMALL}&walk=fa2-backward")
    line = tiles.page.locator(".st-key-tiles-choices > div")
    boxes = [line.nth(i).bounding_box() for i in range(line.count())]
    assert max(box["y"] + box["height"] for box in boxes) - min(box["y"] for box in boxes) < 90


def test_a_broken_kernel_stands_beside_the_right_one(visit) -> None:
    tiles = visit(f"{SMALL}&break=output-not-rescaled&step={STEPS - 1}")
    assert tiles.number("maximum", 0) == tiles.number("maximum", 1)
    proof = tiles.page.get_by_text("Broken, its largest error is").filter(visible=True)
    assert proof.count() == 1
    assert tiles.page.get_by_test_id("stAlert").count() == 0


def test_another_head_keeps_the_step(visit) -> None:
    tiles = visit(f"{SMALL}&step=3")
    before, walk = tiles.said(), tiles.root.get_attribute("data-walk")
    tiles.page.locator(".st-key-tiles-head input").click()
    tiles.page.get_by_role("option", name="0", exact=True).click()
    tiles.wait_for_address("head=0")
    tiles.page.locator(f"{PLAYER}:not([data-walk='{walk}'])").wait_for(timeout=SOON_MS)
    tiles.settle(step=3)
    assert tiles.said() != before
