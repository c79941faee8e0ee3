"""The address of the page: what is written can be read back, and nonsense is dropped by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory import SIDES
from app.state import State, fitted, from_url, moved, selection, to_url, with_selection
from kernels.registry import IMPLEMENTATIONS
from vit.grid import PatchGrid

patches = st.tuples(st.integers(0, 9999), st.integers(0, 9999))
queries = st.one_of(patches, st.just("class"))
tokens = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_-", min_size=16, max_size=64)
states = st.builds(
    State,
    picture=st.one_of(st.sampled_from(["cat", "rocket"]), tokens.map(lambda text: "u-" + text)),
    side=st.sampled_from(SIDES),
    square=st.booleans(),
    layer=st.integers(0, 11),
    head=st.integers(0, 5),
    query=queries,
    direction=st.sampled_from(["looks", "looked_at"]),
    pin=st.none() | queries,
    scale=st.sampled_from(["shared", "each", "log"]),
    opacity=st.integers(0, 100).map(lambda percent: percent / 100),
    compare=st.none()
    | st.lists(st.sampled_from(list(IMPLEMENTATIONS)), min_size=2, unique=True).map(tuple),
)


@given(states)
def test_what_is_written_is_read_back(state: State) -> None:
    assert from_url(to_url(state)) == (state, ())


@given(
    st.dictionaries(
        st.sampled_from(list(to_url(State(query=(1, 2), pin=(3, 4), compare=("a", "b"))))),
        st.text(),
    )
)
def test_any_text_gives_a_state_that_can_be_written(params: dict[str, str]) -> None:
    state, dropped = from_url(params)
    assert from_url(to_url(state)) == (state, ())
    for name in dropped:
        assert getattr(state, name) == getattr(State(), name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("picture", "../../etc/passwd"),
        ("picture", "u-short"),
        ("side", "519"),
        ("side", " 518"),
        ("side", "\uff15\uff11\uff18"),  # digits, but not ours
        ("square", "true"),
        ("model", "owner/name"),
        ("layer", "12"),
        ("layer", "-1"),
        ("head", "6"),
        ("head", "1e0"),
        ("query", "1,2,3"),
        ("query", "1.5,2"),
        ("query", "cls"),
        ("query", "register-1"),
        ("pin", "-1,0"),
        ("direction", "away"),
        ("scale", "linear"),
        ("opacity", "nan"),
        ("opacity", "1.5"),
        ("opacity", ""),
        ("compare", "fa2"),
        ("compare", "fa2,fa2"),
        ("compare", "fa2,mine"),
        ("compare", ""),
    ],
)
def test_nonsense_is_dropped_by_name(name: str, text: str) -> None:
    assert from_url({name: text}) == (State(), (name,))


def test_names_of_others_are_left_alone() -> None:
    assert from_url({"embed": "true", "utm_source": "x"}) == (State(), ())


def test_the_form_of_an_address() -> None:
    compare = ("naive", "torch-cpu-flash")
    state = State(query=(12, 20), pin="class", square=True, opacity=0.5, compare=compare)
    assert to_url(state) == {
        "picture": "cat",
        "side": "518",
        "square": "1",
        "model": "dinov2-small",
        "layer": "11",
        "head": "2",
        "query": "12,20",
        "direction": "looks",
        "pin": "class",
        "scale": "shared",
        "opacity": "0.5",
        "compare": "naive,torch-cpu-flash",
    }


def test_patches_outside_the_grid_are_named() -> None:
    grid = PatchGrid(10, 30, 14, (0, 0, 300, 100))
    assert fitted(State(query=(9, 29), pin="class"), grid)[1] == ()
    state, outside = fitted(State(query=(10, 0), pin=(0, 30)), grid)
    assert (state.query, state.pin, outside) == ("class", None, ("query", "pin"))


def test_patches_stay_where_they_were_on_the_picture() -> None:
    wide = PatchGrid(10, 30, 14, (0, 0, 300, 100))
    fine = PatchGrid(20, 60, 14, (0, 0, 300, 100))
    state = moved(State(query=(0, 0), pin=(9, 29)), wide, fine)
    assert state.query in {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert state.pin in {(18, 58), (18, 59), (19, 58), (19, 59)}
    assert moved(State(query="class"), wide, fine).query == "class"
    square = PatchGrid(10, 10, 14, (100, 0, 200, 100))
    cut = moved(State(query=(5, 0), pin=(5, 15)), wide, square)
    assert (cut.query, cut.pin) == ("class", (5, 5))


def test_the_canvas_changes_its_own_part_only() -> None:
    state = State(picture="rocket", side=224, square=True, query=(3, 4))
    chosen = replace(selection(state), layer=2, head=1, opacity=0.333)
    after = with_selection(state, chosen)
    assert (after.picture, after.side, after.square) == ("rocket", 224, True)
    assert (after.layer, after.head, after.query, after.opacity) == (2, 1, (3, 4), 0.33)
