"""The player on walks of the real kernels, right and broken, in a page without a server.

What it draws as the row's map, so far and at the end, must rebuild the output that the kernel held.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.components.tile_player import modules, story_lines, style
from app.components.tile_player.blob import pack
from app.text.player import PLAYER
from kernels.trace import BROKEN, Walk, walk
from tests.browser.player_cases import Case, player_data

pytestmark = [pytest.mark.browser, pytest.mark.interpreter, pytest.mark.slow]

CASE = Case(8, 18, block=32)  # 145 tokens: four full tiles of keys and one of 17
ROW = 11
SUMMED_TOGETHER = np.log(
    8
)  # of a tile's 32 weights fa3's thread adds up 8 before it looks at their size
MISTAKES = [
    (implementation, mistake.name)
    for mistake in BROKEN.values()
    for implementation in mistake.applies_to
]
READ = """({ at, row, broken }) => {
    const walk = broken ? window.player.data.broken : window.player.data.walk;
    const list = (values) => values && [...values].map(String);
    return {
        map: list(mapSoFar(walk, at, row)),
        output: list(outputSoFar(walk, at, row)),
        values: Object.fromEntries(
            Object.entries(stepValues(walk, at, row)).map(([name, value]) => [name, String(value)])),
    };
}"""


def head() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, CASE.tokens, 32, generator=generator)
    return 3 * q, k, v


class Offline:
    """One page with nothing but the player's own modules, style and bytes."""

    def __init__(self, page) -> None:
        self.page = page

    def open(self, right: Walk, broken: Walk | None = None) -> None:
        data = player_data(CASE)
        data = replace(
            data, walk=right, broken_walk=broken, story=story_lines(right.implementation)
        )
        names = "{ mapSoFar, outputSoFar, stepValues, figure, mount }"
        blob = base64.b64encode(pack(data)).decode()
        self.page.set_content(
            f"<style>{style()}</style><div id='player'></div><script type='module'>{modules()}\n"
            f"Object.assign(window, {names});"
            f"const bytes = Uint8Array.from(atob('{blob}'), (c) => c.charCodeAt(0));"
            "window.player = mount(document.getElementById('player'), bytes);</script>"
        )
        self.page.locator(".tile-player[data-step='0'][data-picture='drawn']").wait_for()

    def read(self, at: int, broken: bool) -> dict:
        """The map [tokens] and output [dim] of a row, NaN where there is none, and its values."""
        found = self.page.evaluate(READ, {"at": at, "row": ROW, "broken": broken})
        numbers = {"Infinity": np.inf, "-Infinity": -np.inf, "null": np.nan}

        def number(text: str) -> float:
            return numbers[text] if text in numbers else float(text)

        return {
            "map": np.array([number(text) for text in found["map"]]),
            "output": None
            if found["output"] is None
            else np.array([*map(number, found["output"])]),
            "values": {name: number(text) for name, text in found["values"].items()},
        }

    def text(self) -> str:
        return self.page.locator(".tile-player").inner_text()


@pytest.fixture
def offline(browser) -> Iterator[Offline]:
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    context.set_default_timeout(10_000)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield Offline(page)
    context.close()
    assert errors == []


def take(implementation: str, broken: str | None = None, scale: float = 1.0) -> Walk:
    q, k, v = head()
    return walk(scale * q, k, v, implementation, 1, CASE.block, CASE.block, broken=broken)


@pytest.mark.parametrize("implementation", ["fa1", "fa2", "fa3", "naive"])
def test_the_map_rebuilds_the_output_at_every_step(offline, implementation):
    right = take(implementation)
    offline.open(right)
    v = head()[2].double().numpy()
    last = len(right.steps) - 1
    for at in range(last + 1) if implementation != "naive" else [last]:
        found = offline.read(at, broken=False)
        rebuilt = np.nan_to_num(found["map"]) @ v
        np.testing.assert_allclose(found["output"], rebuilt, rtol=1e-3, atol=1e-4)
    end = offline.read(last, broken=False)
    np.testing.assert_allclose(end["output"], right.output[ROW].numpy(), rtol=1e-3)
    assert end["map"].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("implementation", "name"), MISTAKES)
def test_a_broken_map_holds_the_weights_that_the_mistake_gave(offline, implementation, name):
    broken = take(implementation, name)
    offline.open(take(implementation), broken)
    last = len(broken.steps) - 1
    found = offline.read(last, broken=True)
    kept = broken.output[ROW].double().numpy()
    np.testing.assert_allclose(found["output"], kept, rtol=1e-3, atol=1e-5)
    rebuilt = found["map"] @ head()[2].double().numpy()
    np.testing.assert_allclose(rebuilt, kept, rtol=1e-3, atol=1e-3 * np.abs(kept).max())
    for key in ("End", "ArrowLeft", "Home"):
        offline.page.locator(".tile-player").press(key)
        offline.page.wait_for_timeout(60)
        assert not re.search(r"undefined|\{\w+\}", offline.text())


@pytest.mark.parametrize("implementation", ["fa1", "fa2", "fa3"])
def test_the_formulas_hold_with_the_numbers_that_stand_in_them(offline, implementation):
    names = [None, *(m.name for m in BROKEN.values())]
    for name in names:
        broken = take(implementation, name)
        offline.open(take(implementation), broken if name else None)
        for at in (1, len(broken.steps) - 1):
            one = offline.read(at, broken=name is not None)["values"]
            factor = 1.0 if name == "sum-not-rescaled" else one["alpha"]
            assert one["sum"] == pytest.approx(factor * one["oldSum"] + one["added"], rel=1e-3)
            largest = one["tileMax"] * (np.log(2) if name == "log-base" else 1)
            if name != "no-maximum":
                stays = 0 < one["share"] < np.exp(broken.most_rise)
                now = one["oldMax"] if stays else max(one["oldMax"], largest)
                assert one["maximum"] == pytest.approx(now, rel=1e-3)
            if implementation == "fa1" and name not in (
                "output-not-rescaled",
                "divided-every-step",
            ):
                whole = one["alpha"] * one["oldSum"] / one["sum"]
                assert one["rescale"] == pytest.approx(whole, rel=1e-3)


def test_numbers_are_written_as_one_writes_them(offline):
    offline.open(take("fa2"))
    values = [17370, 8192, 9999.7, 123456, 0.00099999, 1.5, -14380, 0]
    assert offline.page.evaluate("(values) => values.map((one) => figure(one))", values) == [
        "1.74·10⁴", "8192", "1.00·10⁴", "1.23·10⁵", "1.00·10⁻³", "1.500", "−1.44·10⁴", "0",
    ]  # fmt: skip


def test_what_overflows_in_the_kernel_is_no_number_on_the_screen(offline):
    broken = take("fa2", "no-maximum", scale=30.0)
    assert not np.isfinite(broken.output[ROW].numpy()).all()
    offline.open(take("fa2", scale=30.0), broken)
    offline.page.locator(".tile-player").press("End")
    offline.page.locator(".tile-player select").first.select_option(str(ROW))
    offline.page.get_by_text("off by not a number").wait_for()


def test_beside_a_broken_walk_the_sentence_speaks_of_the_right_one(offline):
    right = take("fa2")
    for broken in (None, take("fa2", "divided-every-step")):
        offline.open(right, broken)
        said = offline.page.locator("p.sentence").inner_text()
        assert said.startswith(PLAYER["say_right"]) == (broken is not None)


def test_fa3_walks_from_the_last_keys_to_the_first(offline):
    """The plane fills from the right, the partial tile first, and what was held from the start is read there."""
    offline.open(take("fa3"))
    assert "Keys 128 to 144, the first tile" in offline.text()
    reads = offline.page.locator(".lane.hbm .matrix").first
    assert reads.get_attribute("data-deed") == "read"
    page = offline.page.locator(".tile-player")
    for _ in range(2):
        page.press("ArrowRight")
    offline.page.locator(".tile-player[data-step='2']").wait_for()
    offline.page.wait_for_timeout(500)  # until the tile stands still
    assert "Keys 64 to 95" in offline.text()
    assert reads.get_attribute("data-deed") == "was"
    row = offline.page.locator(".plane-map").evaluate(
        "c => [...c.getContext('2d').getImageData(0, Math.round(c.height * 0.3), c.width, 1).data]"
    )
    colours = np.array(row, np.uint8).reshape(-1, 4)[:, :3].astype(int)
    saturated = (colours.max(1) - colours.min(1)) > 60
    seen = 64 / CASE.tokens
    places = np.arange(len(colours)) / len(colours)
    assert saturated[places > seen + 0.05].mean() > 0.8
    assert saturated[(places > 0.03) & (places < seen - 0.05)].mean() < 0.1
    page.press("End")
    offline.page.get_by_text("That was the last tile, the first keys").first.wait_for()


def test_a_maximum_that_lags_behind_is_told(offline):
    """fa3 rescales seldom; the map rebuilds the output all the same."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, CASE.tokens, 80, generator=generator)
    right = walk(3 * q, k, v, "fa3", 1, 32, 32)
    offline.open(right)
    said = set()
    for at in range(len(right.steps)):
        found = offline.read(at, broken=False)
        rebuilt = np.nan_to_num(found["map"]) @ v.double().numpy()
        np.testing.assert_allclose(found["output"], rebuilt, rtol=1e-3, atol=1e-4)
        offline.page.locator(".tile-player select").first.select_option(str(ROW))
        said.add(offline.page.locator("p.sentence").inner_text())
        offline.page.locator(".tile-player").press("ArrowRight")
        offline.page.wait_for_timeout(60)
    assert any("so the maximum stays for now" in sentence for sentence in said), said
    assert "reaches 2¹³, else m_old" in offline.text()
    assert not re.search(r"undefined|NaN|\{\w+\}", offline.text())


def test_a_causal_walk_of_fa3_says_when_a_row_meets_its_first_key(offline):
    q, k, v = head()
    right = walk(
        q, k, v, "fa3", 2, 32, 16, causal=True
    )  # of the last 16 keys the first rows see none
    offline.open(right)
    assert "hidden from this row by the causal mask" in offline.text()
    offline.page.locator(".tile-player").press("ArrowRight")
    offline.page.get_by_text("the first that this row may see").first.wait_for()
    assert not re.search(r"undefined|NaN|\{\w+\}", offline.text())


def test_the_backward_pass_shows_its_own_numbers(offline):
    right = take("fa2-backward")
    offline.open(right)
    last = len(right.steps) - 1
    found = offline.read(last, broken=False)
    np.testing.assert_allclose(found["output"], right.output[ROW].numpy(), rtol=1e-3, atol=1e-6)
    one = found["values"]
    assert one["weights"] == pytest.approx(np.exp(one["tileMax"] - one["log_sum_exp"]), rel=1e-3)
    assert found["map"].sum() == pytest.approx(1, abs=1e-4)
    offline.page.locator(".tile-player").press("End")
    offline.page.get_by_text("dQ gets its factor").first.wait_for()
    assert "undefined" not in offline.text()


def test_the_offline_page_plays_to_the_last_step(offline):
    right = take("fa1")
    offline.open(right)
    offline.page.locator(".controls select").select_option("8")
    offline.page.locator(".act.play").click()
    offline.page.locator(f".tile-player[data-step='{len(right.steps) - 1}']").wait_for()
    assert "That was the last tile" in offline.text()
