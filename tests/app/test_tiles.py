"""The page Tiles without a browser: real walks of a small picture; the player's own part is tests/browser's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from streamlit.testing.v1 import AppTest

from app import compute, walks
from app.controls.tiles_beyond import backward_words
from app.controls.tiles_player import place_in
from app.controls.tiles_proof import bytes_of_walk, scientific
from app.memory import in_words
from app.samples import SAMPLES
from app.state_tiles import ALGORITHMS, IN_ADDRESS, SIDES, Tiles, applies
from app.text.tiles import BEYOND, CHOICE, PAGE, PROOF
from kernels import Problem
from kernels.trace import BROKEN, TraceError, walk
from kernels.traffic import formula
from vit import load_image, load_model
from vit.trace import Trace

Open = Callable[..., AppTest]
pytestmark = [
    pytest.mark.usefixtures("fresh_server"),
    pytest.mark.slow,
    pytest.mark.interpreter,
]
COLUMNS = 16  # of the cat's grid at 224 px, after one class token; 177 tokens in all


def only_the_page() -> None:
    """What AppTest runs: the view, without the frame and its panel."""
    from app.guard import guarded
    from app.views import tiles

    guarded(tiles.page)()


@pytest.fixture
def open_page() -> Open:
    """The page for a new visitor, with an address."""

    def opened(**params: str) -> AppTest:
        page = AppTest.from_function(only_the_page, default_timeout=60)
        for name, value in ({"side": "224"} | params).items():
            page.query_params[name] = value
        return page.run()

    return opened


@pytest.fixture
def counted_walks(monkeypatch: pytest.MonkeyPatch) -> list[Tiles]:
    """The walks that the kernel was run for."""
    taken: list[Tiles] = []

    def take(traced: Trace, layer: int, head: int, tiles: Tiles, query_tile: int) -> walks.Walked:
        taken.append(tiles)
        return walks.walked(traced, layer, head, tiles, query_tile)

    monkeypatch.setattr(compute, "walk_head", take)
    return taken


def address(page: AppTest) -> dict[str, str]:
    params = page.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in params}


def sentences(page: AppTest) -> list[str]:
    return [error.value for error in page.error]


def words(page: AppTest) -> str:
    return "\n".join(part.value for part in [*page.caption, *page.markdown])


def is_drawn(page: AppTest) -> bool:
    """The player stands on the page, and the proof under it."""
    assert not page.exception
    player = any(
        block.proto.component_name == "tile_player" for block in page.get("bidi_component")
    )
    assert player == ("largest difference" in words(page))
    return player


def test_the_first_page_needs_no_address(open_page: Open) -> None:
    page = open_page()
    assert is_drawn(page)
    assert sentences(page) == []
    mine = {name: text for name, text in address(page).items() if name in IN_ADDRESS.values()}
    assert mine == {"walk": "fa2", "tile": "64x64", "mask": "0", "step": "0"}


def test_a_walk_of_a_twin_says_so_and_what_it_cannot_show(open_page: Open) -> None:
    page = open_page(walk="fa3")
    assert is_drawn(page)
    assert sentences(page) == []
    said = words(page)
    assert "the numbers of fa3's twin" in said
    assert BEYOND["title"] in said
    assert "counted at the twin's own loads and stores" in said
    assert any("A drawing, not measured." in part.proto.body for part in page.get("html"))
    assert [one.label for one in page.expander] == [BEYOND["steps"]]
    assert BEYOND["title"] not in words(open_page(walk="fa2"))


@pytest.mark.parametrize("name", ["fa3", "fa2-backward"])
def test_the_backward_pass_that_has_no_walk_is_told_by_its_bytes(
    open_page: Open, name: str
) -> None:
    """With few keys fa3 takes fa2's; a walk of fa2 forward says nothing of it."""
    said = words(open_page(walk=name))
    assert BEYOND["backward_title"] in said
    assert BEYOND["backward_fa2"] in said
    assert BEYOND["backward_title"] not in words(open_page(walk="fa2"))


def test_the_bytes_of_a_backward_pass_without_a_walk() -> None:
    """A head of 1370 tokens: 121 meetings of 128 x 128, 110 of which find a share there already."""
    q = torch.zeros(1370, 64)
    seen = replace(walk(q[:32], q[:32], q[:32], "fa2", 0, 16, 16), tokens=1370, causal=False)
    share = 128 * 64 * 4
    said = backward_words(seen)
    assert f"{in_words((121 + 110) * share)} of that" in said
    head = Problem(1, 1, 1370, 1370, 64)
    for name in ("fa3", "fa2"):
        assert in_words(formula(head, name, "backward", "sm_90").total) in said
    assert backward_words(replace(seen, tokens=256)) == BEYOND["backward_fa2"]


def test_a_link_opens_its_very_step(open_page: Open) -> None:
    link = {
        "picture": "coffee",
        "side": "224",
        "square": "0",
        "model": "dinov2-small",
        "layer": "3",
        "head": "5",
        "query": "2,3",
        "direction": "looks",
        "scale": "shared",
        "opacity": "0.7",
        "walk": "fa1",
        "tile": "32x64",
        "mask": "1",
        "queries": "2",
        "break": "sum-not-rescaled",
        "row": "70",
        "step": "1",
    }
    page = open_page(**link)
    assert is_drawn(page)
    assert sentences(page) == []
    assert address(page) == link


@pytest.mark.parametrize("causal", ["0", "1"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_walked_and_proved(open_page: Open, algorithm: str, causal: str) -> None:
    page = open_page(walk=algorithm, mask=causal, query="4,6", tile="32x32")
    assert is_drawn(page)
    assert sentences(page) == []
    assert PROOF["same"] in words(page)


@pytest.mark.parametrize("broken", BROKEN)
def test_every_mistake_stands_beside_the_right_kernel(open_page: Open, broken: str) -> None:
    page = open_page(**{"break": broken, "tile": "32x32"})
    assert is_drawn(page)
    assert "Broken, its largest error is" in words(page)


def test_only_mistakes_that_an_algorithm_can_make_are_offered(open_page: Open) -> None:
    for algorithm in ALGORITHMS:
        page = open_page(walk=algorithm)
        can = [CHOICE[name] for name in BROKEN if applies(name, algorithm)]
        assert page.selectbox(key="tiles-broken").options == [CHOICE["whole"], *can]


def test_the_tile_is_the_one_that_holds_the_query(open_page: Open) -> None:
    token = 1 + 5 * COLUMNS + 7
    page = open_page(query="5,7", tile="16x16")
    assert page.selectbox(key="tiles-query_tile").value == token // 16
    assert "queries" not in address(page)
    page = open_page(query="class", tile="16x16")
    assert page.selectbox(key="tiles-query_tile").value == 0


def test_a_tile_chosen_by_hand_counts_until_the_query_moves(open_page: Open) -> None:
    page = open_page(query="5,7")
    page.selectbox(key="tiles-query_tile").set_value(2).run()
    assert address(page)["queries"] == "2"
    page.selectbox(key="tiles-layer").set_value(4).run()
    assert (address(page)["queries"], address(page)["layer"]) == ("2", "4")
    page.query_params["query"] = "0,0"
    page.run()
    assert is_drawn(page)
    assert "queries" not in address(page)


def test_choices_are_kept_over_a_change_of_page(open_page: Open) -> None:
    page = open_page(walk="fa1", tile="32x32", query="5,7", step="2")
    page.query_params.clear()
    page.run()
    found = address(page)
    assert (found["walk"], found["tile"], found["query"], found["step"]) == (
        "fa1",
        "32x32",
        "5,7",
        "2",
    )


def test_only_a_changed_choice_runs_the_kernel(open_page: Open, counted_walks: list) -> None:
    page = open_page()
    assert len(counted_walks) == 1
    page.query_params["step"] = "1"
    page.query_params["row"] = "9"
    assert is_drawn(page.run())
    assert len(counted_walks) == 1
    page.selectbox(key="tiles-broken").set_value("log-base").run()
    assert [one.broken for one in counted_walks] == [None, "log-base"]
    page.selectbox(key="tiles-head").set_value(0).run()
    assert len(counted_walks) == 4
    open_page(head="0", **{"break": "log-base"})  # another visitor
    assert len(counted_walks) == 4


def test_another_algorithm_starts_from_its_first_step(open_page: Open) -> None:
    page = open_page(step="2", **{"break": "divided-every-step"})
    page.selectbox(key="tiles-algorithm").set_value("naive").run()
    assert is_drawn(page)
    assert (address(page)["step"], "break" in address(page)) == ("0", False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("walk", "fa9"), ("tile", "64x65"), ("break", "<b>"), ("step", "-1"), ("mask", "maybe")],
)
def test_a_bad_value_is_told_once(open_page: Open, name: str, value: str) -> None:
    page = open_page(**{name: value})
    assert is_drawn(page)
    assert sentences(page) == [PAGE["bad_link"].format(name=name)]
    assert sentences(page.run()) == []


def test_a_place_outside_the_picture_is_told(open_page: Open) -> None:
    page = open_page(queries="99")
    assert is_drawn(page)
    assert sentences(page) == [PAGE["not_here"].format(name="queries")]


def test_a_step_behind_the_end_is_the_last(open_page: Open) -> None:
    assert is_drawn(open_page(step="9999"))


def test_tiles_that_do_not_fit_are_greyed_out_with_their_sum(open_page: Open) -> None:
    page = open_page(walk="fa2-backward")
    buttons = {str(button.key): button for button in page.button}
    assert len([key for key in buttons if key.startswith("tiles-size-")]) == len(SIDES) ** 2
    assert buttons["tiles-size-128-128"].disabled
    assert "kB" in buttons["tiles-size-128-128"].label
    assert not buttons["tiles-size-64-64"].disabled
    page = open_page(walk="fa2-backward", tile="128x128")
    assert is_drawn(page)
    assert address(page)["tile"] == "64x64"
    assert "128 × 128 need" in sentences(page)[0]


def test_a_button_takes_its_tile(open_page: Open) -> None:
    page = open_page(step="2")
    page.button(key="tiles-size-16-128").click().run()
    assert is_drawn(page)
    assert (address(page)["tile"], address(page)["step"]) == ("16x128", "0")


def test_a_walk_that_cannot_be_taken_is_one_sentence(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TraceError("This walk is not for walking.")

    monkeypatch.setattr(compute, "walk_head", fail)
    page = open_page()
    assert not is_drawn(page)
    assert sentences(page) == ["This walk is not for walking."]


@pytest.mark.parametrize(
    "sent",
    [None, {"step": "1", "row": 0}, {"step": True, "row": 0}, {"step": -1, "row": 0}, {"row": 3}],
)
def test_what_no_player_sends_moves_nothing(sent: object) -> None:
    assert place_in(sent) is None


@pytest.fixture(scope="module")
def traced() -> Trace:
    photo = load_image(SAMPLES["cat"].path)
    return load_model("dinov2-small").trace(photo, side=224)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("algorithm", ["naive", "fa1", "fa2", "fa3"])
def test_the_last_step_is_the_real_kernels_output(
    traced: Trace, algorithm: str, causal: bool
) -> None:
    tiles = Tiles(algorithm=algorithm, tile=(32, 64), causal=causal)
    found = walks.walked(traced, 11, 2, tiles, 5)
    part = traced.layers[11]
    q, k, v = (tensor[0, 2].double() for tensor in (part.q, part.k, part.v))
    scores = traced.scale * q @ k.T
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    expected = (scores.softmax(-1) @ v)[160:]
    assert found.walk.rows == traced.tokens - 160 == 17
    assert (found.walk.output.double() - expected).abs().max() < 1e-5
    assert found.real is not None
    assert found.real.largest_difference < 1e-5
    assert found.nbytes > 17 * 64 * 4 * len(found.walk.steps)


@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_is_the_real_kernels(traced: Trace, causal: bool) -> None:
    tiles = Tiles(algorithm="fa2-backward", tile=(64, 64), causal=causal)
    found = walks.walked(traced, 5, 1, tiles, 1)
    part = traced.layers[5]
    q, k, v = (tensor[0, 1].double() for tensor in (part.q, part.k, part.v))
    q.requires_grad_()
    scores = traced.scale * q @ k.T
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    (scores.softmax(-1) @ v).sum().backward()
    assert q.grad is not None
    assert (found.walk.output.double() - q.grad[64:128]).abs().max() < 1e-4
    assert found.real is not None
    assert found.real.largest_difference < 1e-4


def test_bytes_that_differ_are_called_a_fault(traced: Trace) -> None:
    right = walks.walked(traced, 11, 2, Tiles(), 0).walk
    assert PROOF["same"] in bytes_of_walk(right)
    wrong = replace(right, formula_read=right.formula_read + 4)
    assert PROOF["differs"].format(bytes="4") in bytes_of_walk(wrong)
    assert "(formula" in bytes_of_walk(replace(right, bytes_source="formula"))


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1.24e-7, "1.2e-07"), (0.97, "0.97"), (float("inf"), "inf")]
)
def test_errors_are_written_with_their_size(value: float, text: str) -> None:
    assert scientific(value) == text
