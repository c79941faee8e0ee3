"""The patch canvas in a real browser, on one-hot maps: what is clicked, drawn and reported agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.browser.canvas_cases import CASES, Case, lit_patch
from tests.browser.canvas_page import Canvas
from vit.colours import PROBABILITY

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLAYGROUND = "tests/browser/canvas_playground.py"
BRIGHTEST = PROBABILITY[-1]
DARKEST = PROBABILITY[0]


@pytest.fixture
def open_canvas(browser, streamlit_server) -> Iterator[Callable[..., Canvas]]:
    """open_canvas(case, width=1440) opens the playground; errors of the page fail the test."""
    address = streamlit_server(PLAYGROUND)
    errors: list[str] = []
    contexts = []

    def start(name: str, width: int = 1440, query: str = "", **options) -> Canvas:
        context = browser.new_context(viewport={"width": width, "height": 1100}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{address}/?case={name}{query}")
        page.locator(".patch-canvas[data-drawn-seq][data-picture]").wait_for(timeout=30000)
        canvas = Canvas(page, CASES[name])
        canvas.wait(query="2,3")
        return canvas

    yield start
    for context in contexts:
        context.close()
    assert errors == []


def places(case: Case) -> list[tuple[int, int]]:
    """The centre and the four corners."""
    bottom, right = case.rows - 1, case.columns - 1
    return [(case.rows // 2, case.columns // 2), (0, 0), (0, right), (bottom, 0), (bottom, right)]


@pytest.mark.parametrize("name", ["square", "wide", "wider", "tall", "registers", "crop"])
def test_a_clicked_patch_is_the_one_that_is_drawn_and_reported(open_canvas, name):
    canvas = open_canvas(name)
    case = canvas.case
    assert canvas.picture.get_attribute("data-rows") == str(case.rows)
    assert canvas.picture.get_attribute("data-columns") == str(case.columns)
    canvas.set_opacity(100)
    canvas.page.locator(".head[data-head='2']").click()
    for row, column in places(case):
        canvas.click(row, column)
        canvas.wait(query=f"{row},{column}", head=2)
        canvas.python(query=[row, column], head=2)
        canvas.page.mouse.move(5, 5)  # the hovered patch carries an outline
        canvas.page.wait_for_timeout(50)
        query = row * case.columns + column
        for head in (1, 2, 5):
            lit = lit_patch(case, (row, column), head, "looks")
            assert canvas.map_pixel(head, lit) == BRIGHTEST
            far = (query + case.rows * case.columns // 2) % (case.rows * case.columns)
            assert canvas.map_pixel(head, far) == DARKEST
        lit = lit_patch(case, (row, column), 2, "looks")
        assert canvas.overlay_pixel(lit) == BRIGHTEST


def test_outside_the_crop_nothing_can_be_chosen_and_no_map_is_drawn(open_canvas):
    canvas = open_canvas("crop")
    canvas.set_opacity(100)
    bounds = canvas.picture.bounding_box()
    canvas.picture.click(position={"x": 0.1 * bounds["width"], "y": 0.5 * bounds["height"]})
    canvas.page.wait_for_timeout(400)
    canvas.wait(query="2,3")
    red, _, blue = canvas.pixel(".overlay[data-map='a']", 0.9, 0.5)
    assert 50 < red < 120  # the dimmed picture, which is red at its right
    assert blue < 60


def test_the_other_direction_and_every_chip(open_canvas):
    canvas = open_canvas("registers")
    canvas.page.get_by_role("button", name="who looks at it").click()
    canvas.wait(direction="looked_at")
    canvas.python(direction="looked_at")
    lit = lit_patch(canvas.case, (2, 3), 5, "looked_at")
    assert canvas.map_pixel(5, lit) == BRIGHTEST
    for name in canvas.case.prefix:
        canvas.page.locator(f".chips [data-token='{name}']").click()
        canvas.wait(query=name)
        canvas.python(query=name)
        assert canvas.map_pixel(0, 0) == BRIGHTEST


def test_hover_tells_row_column_and_value_and_reaches_every_map(open_canvas):
    canvas = open_canvas("wide")
    x, y = canvas.centre(2, 5)
    canvas.picture.hover(position={"x": x, "y": y})
    readout = canvas.page.locator(".readout-text")
    readout.get_by_text("row 2 · column 5").wait_for()
    assert canvas.page.locator(".head .number").all_inner_texts() == [
        "0",
        "0",
        "0.950",
        "0",
        "0",
        "0",
    ]
    canvas.page.locator(".strong-patch").first.hover()
    readout.get_by_text("row 2 · column 3").wait_for()


def test_the_keyboard_moves_pins_and_unpins(open_canvas):
    canvas = open_canvas("wide")
    canvas.picture.focus()
    for key in ["ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowUp"]:
        canvas.page.keyboard.press(key)
    canvas.wait(query="1,4")
    canvas.python(query=[1, 4])
    assert canvas.page.locator(".picture .spoken").inner_text() == "Query: row 1, column 4."
    canvas.page.keyboard.press("p")
    canvas.python(pin=[1, 4])
    for _ in range(12):
        canvas.page.keyboard.press("ArrowUp")
    canvas.wait(query="0,4")
    canvas.set_opacity(100)
    b = canvas.page.locator(".overlay[data-map='b']")
    b.wait_for()
    assert canvas.overlay_pixel(lit_patch(canvas.case, (1, 4), 0, "looks"), "b") == BRIGHTEST
    assert canvas.overlay_pixel(lit_patch(canvas.case, (0, 4), 0, "looks"), "a") == BRIGHTEST
    canvas.picture.focus()
    canvas.page.keyboard.press("Escape")
    b.wait_for(state="hidden")
    canvas.python(pin=None)


def test_the_overview_opens_a_head(open_canvas):
    canvas = open_canvas("wide")
    overview = canvas.page.locator(".overview-map")
    size = {
        name: int(overview.get_attribute(f"data-{name}"))
        for name in ("cell-width", "cell-height", "margin", "gap")
    }
    overview.click(
        position={
            "x": size["margin"] + 4.5 * (size["cell-width"] + size["gap"]),
            "y": size["margin"] + 2.5 * (size["cell-height"] + size["gap"]),
        }
    )
    canvas.wait(layer=2, head=4)
    canvas.python(layer=2, head=4)
    overview.press("ArrowUp")
    overview.press("ArrowRight")
    canvas.wait(layer=1, head=5)
    canvas.python(layer=1, head=5)
    assert canvas.page.locator(".large h3").inner_text() == "Layer 1, head 5"


def test_each_scale_has_its_colours_and_its_bar(open_canvas):
    canvas = open_canvas("registers")
    last_tick = canvas.page.locator(".ticks .number").last
    first_tick = canvas.page.locator(".ticks .number").first
    assert (first_tick.inner_text(), last_tick.inner_text()) == ("0", "0.750")
    canvas.page.get_by_role("button", name="logarithmic").click()
    canvas.wait(scale="log")
    assert (first_tick.inner_text(), last_tick.inner_text()) == ("7.5·10⁻⁵", "0.750")
    canvas.python(scale="log")
    canvas.page.get_by_role("button", name="per map").click()
    canvas.wait(scale="each")
    assert "head 0 alone" in canvas.page.locator(".about").inner_text()
    assert "25.0 %" in canvas.page.locator(".outside").inner_text()


def test_a_broken_map_is_a_sentence_and_its_neighbours_are_drawn(open_canvas):
    canvas = open_canvas("broken")
    for head in (1, 2):
        broken = canvas.page.locator(f".head[data-head='{head}'] .broken")
        assert "not a probability" in broken.inner_text()
        assert canvas.map_pixel(head, 200) == (0, 0, 0)  # transparent: never coloured
    assert canvas.map_pixel(3, lit_patch(canvas.case, (2, 3), 3, "looks")) == BRIGHTEST


def test_flat_maps_are_dark_in_every_scale(open_canvas):
    canvas = open_canvas("flat")
    for scale in ("shared", "each", "log"):
        canvas.page.locator(f"[data-value='{scale}']").click()
        canvas.wait(scale=scale)
        assert canvas.map_pixel(0, 200) == DARKEST


def test_the_last_of_many_quick_clicks_wins(open_canvas):
    canvas = open_canvas("wide", query="&slow=0.5")
    for column in (8, 12, 16, 20):
        canvas.click(7, column)
        canvas.page.wait_for_timeout(90)
    assert canvas.root.get_attribute("data-waiting") == "true"
    canvas.page.locator(".updating.shown").wait_for()
    canvas.wait(query="7,20")
    canvas.python(query=[7, 20])
    canvas.page.wait_for_timeout(800)
    assert canvas.root.get_attribute("data-query") == "7,20"


def test_a_click_is_drawn_in_a_blink(open_canvas):
    canvas = open_canvas("wider")
    times = []
    for column in range(5, 15):
        canvas.click(9, column)
        canvas.wait(query=f"9,{column}")
        times.append(float(canvas.root.get_attribute("data-redraw-ms")))
        canvas.page.wait_for_timeout(150)
    assert sorted(times)[len(times) // 2] <= 300


def test_python_can_move_the_canvas_too(open_canvas):
    canvas = open_canvas("wide")
    canvas.click(5, 5)
    canvas.wait(query="5,5")
    canvas.python(query=[5, 5])
    canvas.page.get_by_role("button", name="Open layer 1 from outside").click()
    canvas.wait(query="0,0", layer=1)
    canvas.click(6, 6)
    canvas.wait(query="6,6", layer=1)
    canvas.python(query=[6, 6], layer=1)


@pytest.mark.parametrize("name", ["registers", "big", "tall"])
def test_a_phone_shows_everything_in_its_width(open_canvas, name):
    canvas = open_canvas(name, width=390, has_touch=True, device_scale_factor=2)
    inside = canvas.root.evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert inside[0] <= inside[1]
    page = canvas.page.evaluate(
        "() => { const e = document.querySelector('[data-testid=stMain]');"
        "return [e.scrollWidth, e.clientWidth]; }"
    )
    assert page[0] <= page[1]
    x, y = canvas.centre(4, 6)
    canvas.picture.tap(position={"x": x, "y": y})
    canvas.wait(query="4,6")
    canvas.python(query=[4, 6])
