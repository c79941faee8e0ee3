"""The side panel in a real browser: it measures while the page is used, and keeps its place."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from app.text import en
from app.text.cost import PANEL

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CANVAS = "[data-drawn-seq]"
SIDE, BODY, FOLD = ".st-key-side", ".st-key-cost-body", ".cost-fold summary"
MEASURE, STOP = ".st-key-cost-measure button", ".st-key-cost-stop button"
LIVE_TAGS = ".cost-row:not(.cost-small) .cost-tag summary"
IDLE = '.stApp[data-test-script-state="notRunning"]'
PATIENCE_MS = 120_000


@pytest.fixture
def visit(browser, streamlit_server) -> Callable:
    """Open the page as a new visitor and wait until canvas and panel are drawn."""
    contexts = []

    def open_page(query: str = "side=224", width: int = 1440, scheme: str = "light"):
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{streamlit_server('app/main.py')}/?{query}")
        drawn(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


def drawn(page) -> None:
    page.wait_for_selector(f'{CANVAS}[data-waiting="false"]', timeout=PATIENCE_MS)
    page.wait_for_selector(MEASURE, state="attached", timeout=PATIENCE_MS)
    page.wait_for_selector(IDLE, state="attached", timeout=PATIENCE_MS)


def press(page, button: str) -> None:
    page.locator(button).filter(visible=True).click()


def address(page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def click_patch(page, row: int, column: int) -> None:
    canvas = page.locator(f"{CANVAS} canvas[data-rows]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    rows, columns = (int(canvas.get_attribute(f"data-{name}")) for name in ("rows", "columns"))
    x, y = (column + 0.5) * box["width"] / columns, (row + 0.5) * box["height"] / rows
    canvas.click(position={"x": x, "y": y})
    page.wait_for_selector(
        f'{CANVAS}[data-query="{row},{column}"][data-waiting="false"]', timeout=PATIENCE_MS
    )


def test_it_measures_while_the_page_is_used(visit) -> None:
    page = visit("side=224&compare=eager,torch-cpu-flash,naive,fa2")
    assert "measured" not in page.locator(LIVE_TAGS).all_inner_texts()
    first = page.locator(LIVE_TAGS).first
    first.click()
    press(page, MEASURE)
    page.locator(STOP).filter(visible=True).wait_for()
    for place in (2, 5):
        click_patch(page, place, place + 1)
        assert page.locator(STOP).filter(visible=True).count() == 1, "it still measures"
    assert address(page)["query"] == "5,6"
    page.locator(MEASURE).filter(visible=True).wait_for(timeout=PATIENCE_MS)
    page.wait_for_selector(IDLE, state="attached")
    tags = page.locator(LIVE_TAGS).all_inner_texts()
    assert tags.count("measured") == 4, tags
    assert tags.count("counted") == 2, tags
    assert page.get_by_test_id("stAlert").count() == 0
    click_patch(page, 7, 7)


def test_nothing_is_asked_of_the_server_once_it_is_over(visit) -> None:
    page = visit()
    press(page, MEASURE)
    page.locator(STOP).filter(visible=True).wait_for()
    press(page, STOP)
    page.locator(MEASURE).filter(visible=True).wait_for(timeout=PATIENCE_MS)
    page.wait_for_selector(IDLE, state="attached")
    states = page.evaluate(
        """async () => {
            const app = document.querySelector(".stApp"), seen = new Set();
            const watch = new MutationObserver(() => seen.add(app.dataset.testScriptState));
            watch.observe(app, {attributes: true});
            await new Promise(done => setTimeout(done, 2500));
            watch.disconnect();
            return [...seen];
        }"""
    )
    assert "running" not in states


def test_an_open_tag_stays_open_and_nothing_moves(visit) -> None:
    page = visit("side=224&square=1")  # a size that nobody has measured, so that no tag changes
    page.locator(LIVE_TAGS).first.click()
    press(page, MEASURE)
    page.locator(STOP).filter(visible=True).wait_for()
    page.wait_for_selector(".cost-live")
    page.wait_for_timeout(1500)
    heights = set()
    for _ in range(8):
        heights.add(page.eval_on_selector(SIDE, "side => side.scrollHeight"))
        page.wait_for_timeout(400)
    assert len(heights) == 1
    assert page.locator(".cost-tag[open]").count() == 1
    press(page, STOP)
    page.locator(MEASURE).filter(visible=True).wait_for(timeout=PATIENCE_MS)


def test_the_panel_stands_left_of_the_page_and_stays_in_sight(visit) -> None:
    page = visit()
    side, canvas = page.locator(SIDE).bounding_box(), page.locator(CANVAS).bounding_box()
    assert 240 <= side["width"] <= 270
    assert side["x"] + side["width"] < canvas["x"]
    assert canvas["width"] > 1080
    assert not page.locator(FOLD).is_visible()
    page.mouse.move(1000, 500)
    page.mouse.wheel(0, 700)
    page.wait_for_timeout(500)
    top = page.locator(f"{SIDE} h2").bounding_box()["y"]
    assert 0 < top < 200


@pytest.mark.parametrize("width", [390, 1000])
def test_on_a_narrow_screen_it_folds_under_the_page(visit, width: int) -> None:
    page = visit(width=width)
    save = page.locator(".st-key-save-npz button").filter(visible=True).bounding_box()
    fold = page.locator(FOLD)
    assert fold.inner_text() == PANEL["title"]
    assert fold.bounding_box()["y"] > save["y"] + save["height"]
    assert not page.locator(BODY).is_visible()
    fold.click()
    page.locator(MEASURE).filter(visible=True).wait_for()
    page.locator(LIVE_TAGS).first.click()
    assert page.locator(".cost-story").first.is_visible()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    block = page.get_by_test_id("stMainBlockContainer")
    assert block.evaluate("block => block.scrollWidth <= block.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_texts_of_the_panel_can_be_read(visit, scheme: str) -> None:
    page = visit(scheme=scheme)
    page.locator(LIVE_TAGS).first.click()
    texts = f"{SIDE} [data-testid=stHtml] :is(p, h2, h3, li > span, summary, .cost-story span)"
    assert page.locator(texts).count() > 20
    low = page.eval_on_selector_all(
        f"{SIDE} [data-testid=stHtml] :is(p, h2, h3, h4, li > span, summary, .cost-story span, .cost-scale span)",
        """nodes => {
            const canvas = document.createElement("canvas").getContext("2d");
            const rgb = (colour, under) => {
                canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
                canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
            };
            const light = c => c.map(v => v / 255)
                .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const page = getComputedStyle(document.querySelector(".stApp")).backgroundColor;
            return nodes.filter(node => node.innerText.trim()).map(node => {
                const [a, b] = [light(rgb(getComputedStyle(node).color, page)), light(rgb(page, page))];
                return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.innerText];
            }).filter(([ratio]) => ratio < 4.5);
        }""",
    )
    assert low == []


def test_another_page_keeps_the_state_and_the_panel(visit) -> None:
    page = visit("picture=rocket&side=224&layer=3&query=4,6&compare=fa1,fa2")
    before = address(page)
    links = page.get_by_test_id("stTopNavLink")
    if links.count() < 2:
        pytest.skip("there is one page only")
    links.nth(1).click()
    page.wait_for_function("() => !document.querySelector('[data-drawn-seq]')")
    page.wait_for_function("() => location.search.includes('picture=rocket')")
    page.wait_for_selector(MEASURE, state="attached")
    assert PANEL["title"] in page.locator(SIDE).inner_text()
    page.get_by_text(en.FRAME["heads"], exact=True).first.click()
    drawn(page)
    assert {name: address(page)[name] for name in before} == before
    assert page.locator(CANVAS).get_attribute("data-query") == "4,6"
