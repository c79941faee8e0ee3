"""The choices of a walk in the address: what is written can be read back, nonsense is dropped by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import state_speed
from app.state import NAMES
from app.state_tiles import (
    ALGORITHMS,
    IN_ADDRESS,
    SIDES,
    Tiles,
    applies,
    count_of,
    fitted,
    for_query,
    from_url,
    row_of,
    rows_of,
    tile_of,
    to_url,
    with_algorithm,
    with_tile,
)
from kernels.trace import BROKEN

sides = st.sampled_from(SIDES)
places = st.integers(0, 9_999_999)
choices = st.builds(
    Tiles,
    algorithm=st.sampled_from(ALGORITHMS),
    tile=st.tuples(sides, sides),
    causal=st.booleans(),
    query_tile=st.none() | places,
    broken=st.none() | st.sampled_from(list(BROKEN)),
    row=st.none() | places,
    step=places,
).filter(lambda tiles: tiles.broken is None or applies(tiles.broken, tiles.algorithm))


@given(choices)
def test_what_is_written_is_read_back(tiles: Tiles) -> None:
    assert from_url(to_url(tiles)) == (tiles, ())


@given(st.dictionaries(st.sampled_from(list(IN_ADDRESS.values())), st.text()))
def test_any_text_gives_choices_that_can_be_written(params: dict[str, str]) -> None:
    tiles, _ = from_url(params)
    assert from_url(to_url(tiles)) == (tiles, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("walk", "fa9"),
        ("walk", ""),
        ("tile", "64"),
        ("tile", "64x63"),
        ("tile", "256x64"),
        ("tile", "٦٤x64"),  # digits, but not ours
        ("mask", "true"),
        ("queries", "-1"),
        ("queries", "1.5"),
        ("break", "os.system"),
        ("row", "12,20"),
        ("step", "1e3"),
        ("step", "<b>"),
    ],
)
def test_nonsense_is_dropped_by_name(name: str, text: str) -> None:
    assert from_url({name: text}) == (Tiles(), (name,))


def test_a_mistake_that_the_algorithm_cannot_make_is_dropped() -> None:
    params = {"walk": "naive", "break": "divided-every-step"}
    assert from_url(params) == (Tiles(algorithm="naive"), ("break",))
    assert from_url(params | {"walk": "fa1"})[1] == ()


def test_names_in_the_address_are_neither_those_of_the_state_nor_of_a_sweep() -> None:
    mine = {*IN_ADDRESS.values()}
    assert len(mine) == len(IN_ADDRESS)
    assert not mine & NAMES
    assert not mine & {*state_speed.IN_ADDRESS.values()}
    assert from_url({"picture": "cat", "embed": "true"}) == (Tiles(), ())


def test_the_form_of_an_address() -> None:
    tiles = Tiles("fa1", (32, 128), True, 5, "no-maximum", 170, 9)
    assert to_url(tiles) == {
        "walk": "fa1",
        "tile": "32x128",
        "mask": "1",
        "queries": "5",
        "break": "no-maximum",
        "row": "170",
        "step": "9",
    }
    assert "queries" not in to_url(Tiles())


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 1370])
@pytest.mark.parametrize("block_q", SIDES)
def test_the_tiles_cover_every_token_once(tokens: int, block_q: int) -> None:
    count = count_of(tokens, block_q)
    found = [token for tile in range(count) for token in rows_of(tile, block_q, tokens)]
    assert found == list(range(tokens))
    for query in (0, tokens - 1):
        assert query in rows_of(tile_of(Tiles(tile=(block_q, 64)), query), block_q, tokens)


def test_tile_and_row_follow_the_query_until_they_are_chosen() -> None:
    tiles = Tiles()
    assert tile_of(tiles, 500) == 7
    assert row_of(tiles, range(448, 512), 500) == 500
    assert row_of(tiles, range(64, 128), 500) == 64
    chosen = replace(tiles, query_tile=2, row=130)
    assert tile_of(chosen, 500) == 2
    assert row_of(chosen, range(128, 192), 500) == 130
    assert for_query(replace(chosen, step=4)) == tiles


def test_a_place_that_the_picture_does_not_have_is_named() -> None:
    assert fitted(Tiles(query_tile=21, row=1369), 1370, 0) == (Tiles(query_tile=21, row=1369), ())
    assert fitted(Tiles(query_tile=22, row=1400), 1370, 0) == (Tiles(), ("queries", "row"))
    assert fitted(Tiles(row=64), 1370, 63) == (Tiles(), ("row",))


def test_another_tile_size_stays_at_the_same_queries() -> None:
    tiles = with_tile(Tiles(query_tile=5, row=330, step=3), (16, 128))
    assert tiles == Tiles(tile=(16, 128), query_tile=20)
    assert with_tile(Tiles(step=3), (128, 16)) == Tiles(tile=(128, 16))


def test_another_algorithm_keeps_a_mistake_that_it_can_make() -> None:
    tiles = Tiles(broken="divided-every-step", step=7, query_tile=3)
    assert with_algorithm(tiles, "fa1").broken == "divided-every-step"
    assert with_algorithm(tiles, "naive") == Tiles(algorithm="naive", query_tile=3)
