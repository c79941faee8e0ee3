"""The article in a real browser: the formula's numbers against numpy, with sliders, keys and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from app.state_tiles import PATH
from app.text.why import MERGE, PRESETS
from app.views.why import SCORES, START

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FORMULA = ".merge-formula[data-right-error]"
IDLE = '.stApp[data-test-script-state="notRunning"]'
LOADED_MS = 60_000


@pytest.fixture
def visit(browser, streamlit_server) -> Iterator[Callable]:
    """Open the page as a new visitor; errors of the page fail the test."""
    errors: list[str] = []
    contexts = []

    def open_page(width: int = 1440, scheme: str = "light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{streamlit_server('app/main.py')}/how?side=224")
        # The page is whole when its script has ended, and KaTeX comes later still.
        page.wait_for_selector(FORMULA, timeout=LOADED_MS)
        page.wait_for_selector(IDLE, state="attached", timeout=LOADED_MS)
        page.wait_for_selector(".katex-html .base", state="attached", timeout=LOADED_MS)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def in_circulation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Written from the formula, not from the component."""
    m = max(x.max(), y.max())
    inner = [softmax(x) * np.exp(x.max() - m), softmax(y) * np.exp(y.max() - m)]
    return softmax(np.concatenate(inner))


def columns(page) -> np.ndarray:
    """[6, 3]: the shares behind the bars, which carry every digit."""
    return np.array(
        page.locator(".merge-formula tbody tr").evaluate_all(
            """rows => rows.map(row => [...row.querySelectorAll('.bar')]
                .map(bar => Number(bar.style.getPropertyValue('--share'))))"""
        )
    )


def check(page, x: np.ndarray, y: np.ndarray) -> None:
    shown = columns(page)
    whole, wrong = softmax(np.concatenate([x, y])), in_circulation(x, y)
    np.testing.assert_allclose(shown[:, 0], whole, rtol=1e-9)
    np.testing.assert_allclose(shown[:, 1], whole, rtol=1e-9)
    np.testing.assert_allclose(shown[:, 2], wrong, rtol=1e-9)
    told = page.locator(FORMULA).evaluate("node => ({...node.dataset})")
    assert float(told["rightError"]) < 1e-12
    assert float(told["wrongError"]) == pytest.approx(np.abs(wrong - whole).max(), abs=1e-12)


def test_numbers_are_those_of_float64_wherever_the_sliders_stand(visit):
    page = visit()
    check(page, *map(np.array, START))
    sliders = page.locator(".merge-formula input")
    for scores in np.random.default_rng(0).integers(-16, 17, size=(4, 6)) / 2:
        for i, score in enumerate(scores):
            sliders.nth(i).fill(str(score))
        check(page, scores[:3], scores[3:])


def test_presets_show_when_the_wrong_formula_is_right(visit):
    page = visit()
    verdict = page.locator(".verdict.wrong")
    assert verdict.inner_text().startswith(MERGE["wrong_by"].partition("{")[0])
    page.get_by_role("button", name=PRESETS["equal"]).click()
    check(page, *map(np.array, SCORES["equal"]))
    assert verdict.inner_text() == MERGE["wrong_not"]
    page.get_by_role("button", name=PRESETS["far"]).click()
    check(page, *map(np.array, SCORES["far"]))
    assert verdict.inner_text() != MERGE["wrong_not"]


def test_a_slider_moves_by_keys_and_a_reader_is_told_when_it_rests(visit):
    page = visit()
    first = page.locator(".merge-formula input").first
    first.focus()
    page.keyboard.press("ArrowRight")
    x = np.array(START[0])
    x[0] += 0.5
    check(page, x, np.array(START[1]))
    assert first.get_attribute("aria-valuetext") == f"{x[0]:.1f}"
    status = page.locator(".merge-formula [role=status]")
    said = page.locator(".merge-formula .verdict.right").inner_text()
    page.wait_for_function(
        "([node, said]) => node.textContent.startsWith(said)",
        arg=[status.element_handle(), said],
        timeout=5000,
    )


def test_each_question_leads_to_its_walk_of_the_picture_at_hand(visit):
    page = visit()
    links = page.get_by_test_id("stPageLink-NavLink").evaluate_all(
        "all => all.map(one => one.href)"
    )
    asked = [parse_qs(urlsplit(link).query) for link in links]
    assert {urlsplit(link).path for link in links} == {f"/{PATH}"}
    walks = [(one["walk"][0], one["tile"][0], one.get("break", [""])[0]) for one in asked]
    assert walks == [
        ("fa2", "64x64", ""),
        ("fa2", "64x64", "no-maximum"),
        ("fa2", "64x64", "output-not-rescaled"),
        ("fa1", "64x64", ""),
        ("fa3", "64x64", ""),
        ("fa3", "16x64", ""),
        ("fa2", "16x16", ""),
    ]
    assert all((one["picture"], one["side"]) == (["cat"], ["224"]) for one in asked)
    page.get_by_test_id("stPageLink-NavLink").nth(3).click()
    page.wait_for_url("**/tiles?**walk=fa1**", timeout=LOADED_MS)
    page.locator(".tile-player[data-step]").wait_for(timeout=LOADED_MS)


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_window(visit, width):
    page = visit(width=width)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    block = page.get_by_test_id("stMainBlockContainer")
    assert block.evaluate("block => block.scrollWidth <= block.clientWidth")
    assert page.locator(FORMULA).evaluate("node => node.scrollWidth <= node.clientWidth")
    ends = page.locator(".katex-html .base").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().right)"
    )
    assert ends
    assert max(ends) <= width
