"""The choices of a walk, on one line: algorithm, tile size, queries, layer, head, mask, what is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app import chip, compute, session
from app.controls.tiles_size import tile_choice
from app.guard import guarded_callback
from app.memory import in_words
from app.state import State
from app.state_tiles import (
    ALGORITHMS,
    IN_ADDRESS,
    Tiles,
    applies,
    count_of,
    fitted,
    for_query,
    from_url,
    rows_of,
    tile_of,
    to_url,
    with_algorithm,
    with_tile,
)
from app.text.tiles import CHOICE, PAGE
from kernels.trace import BROKEN
from vit.trace import Trace

KEPT, KEPT_FOR = "kept tiles", "kept tiles for"
WHOLE = "whole"
"""Chosen where nothing is broken."""


@dataclass(frozen=True)
class Head:
    """What there is to choose from: the trace's sizes, and the token that is the query."""

    layers: int
    heads: int
    tokens: int
    head_dim: int
    query: int


def chosen(state: State) -> Tiles:
    """What the address asks for; where it says nothing, what this visitor chose last.

    A query tile, row and step that were chosen for another query or picture say nothing of this one.
    """
    params = st.query_params.to_dict()
    kept = st.session_state.get(KEPT)
    if kept is not None and arrives():
        found = kept
    else:
        found, dropped = from_url(params)
        for name in dropped:
            session.tell(PAGE["bad_link"].format(name=name))
    if found == kept and st.session_state.get(KEPT_FOR) != subject_of(state):
        return for_query(found)
    return found


def arrives() -> bool:
    """True where the visitor comes from another page, which has left the address without any choice."""
    return not {*IN_ADDRESS.values()} & st.query_params.to_dict().keys()


def possible(state: State, traced: Trace) -> Tiles:
    """The choices, with a default in place of what this picture or this GPU does not have; it is told."""
    tiles, outside = fitted(chosen(state), traced.tokens, traced.token(state.query))
    for name in outside:
        session.tell(PAGE["not_here"].format(name=name))
    limit = chip.limit_of(compute.device()).bytes
    need = chip.needs(tiles.algorithm, traced.layers[0].q.shape[-1])
    tile = chip.fitting(tiles.tile, need, limit)
    if tile == tiles.tile:
        return tiles
    sentence = PAGE["too_large"].format(
        tile=size_words(tiles.tile),
        need=in_words(need[tiles.tile]),
        limit=in_words(limit),
        instead=size_words(tile),
    )
    session.tell(sentence)
    return with_tile(tiles, tile)


def write(state: State, tiles: Tiles) -> None:
    """Put the choices into the address beside what else stands there."""
    st.session_state[KEPT], st.session_state[KEPT_FOR] = tiles, subject_of(state)
    now, mine = st.query_params.to_dict(), to_url(tiles)
    others = {name: value for name, value in now.items() if name not in IN_ADDRESS.values()}
    if now != others | mine:
        st.query_params.from_dict(others | mine)


def subject_of(state: State) -> tuple[Any, ...]:
    """What a query tile, a row and a step belong to; they stay for another layer or head."""
    return state.picture, state.side, state.square, state.model, state.query


def head_of(state: State, traced: Trace) -> Head:
    return Head(
        layers=len(traced.layers),
        heads=traced.heads,
        tokens=traced.tokens,
        head_dim=traced.layers[0].q.shape[-1],
        query=traced.token(state.query),
    )


def subject(state: State, traced: Trace, tiles: Tiles, sentence: str) -> str:
    """A sentence about the queries that are walked."""
    query_tile = tile_of(tiles, traced.token(state.query))
    rows = rows_of(query_tile, tiles.block_q, traced.tokens)
    return sentence.format(
        layer=state.layer,
        head=state.head,
        first=rows[0],
        last=rows[-1],
        tokens=f"{traced.tokens:,}",
    )


def whole(tiles: Tiles) -> Tiles:
    """The same with the right kernel."""
    return replace(tiles, broken=None)


def size_words(tile: tuple[int, int]) -> str:
    return CHOICE["size"].format(queries=tile[0], keys=tile[1])


# --- the line -----------------------------------------------------------------------------------------


def tiles_choice(state: State, tiles: Tiles, head: Head) -> None:
    """All choices; the line wraps where it is too narrow."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="tiles-choices"):
        select("algorithm", ALGORITHMS, tiles.algorithm, CHOICE.__getitem__, width=190)
        tile_choice(tiles, head.head_dim, take_tile)
        select(
            "query_tile",
            range(count_of(head.tokens, tiles.block_q)),
            tile_of(tiles, head.query),
            query_tile_words(tiles, head),
            help=CHOICE["query_tile_help"],
            width=235,
        )
        select("layer", range(head.layers), state.layer, width=72)
        select("head", range(head.heads), state.head, width=72)
        select(
            "broken",
            [WHOLE, *(name for name in BROKEN if applies(name, tiles.algorithm))],
            tiles.broken or WHOLE,
            CHOICE.__getitem__,
            help=CHOICE["broken_help"],
            width=215,
        )
        causal_choice(tiles)


def query_tile_words(tiles: Tiles, head: Head) -> Callable[[int], str]:
    """A query tile as the list shows it: its number, its tokens, and whether the query is among them."""
    count = count_of(head.tokens, tiles.block_q)

    def words(number: int) -> str:
        rows = rows_of(number, tiles.block_q, head.tokens)
        text = CHOICE["query_tile_own" if head.query in rows else "query_tile_one"]
        return text.format(number=number, count=count, first=rows[0], last=rows[-1])

    return words


def causal_choice(tiles: Tiles) -> None:
    st.session_state[key("causal")] = tiles.causal
    st.toggle(
        CHOICE["causal"],
        key=key("causal"),
        on_change=change,
        args=("causal",),
        help=CHOICE["causal_help"],
    )


def select(
    field: str,
    options: Sequence[Any],
    value: Any,
    words: Callable[[Any], str] = str,
    **more: Any,
) -> None:
    """A list whose choice goes into the address."""
    st.session_state[key(field)] = value
    st.selectbox(
        CHOICE[field],
        options,
        format_func=words,
        key=key(field),
        on_change=change,
        args=(field,),
        **more,
    )


def key(field: str) -> str:
    return f"tiles-{field}"


# --- what a change does -------------------------------------------------------------------------------


@guarded_callback
def change(field: str) -> None:
    """Take over one choice."""
    state, value = session.state(), st.session_state[key(field)]
    tiles = chosen(state)
    if field in ("layer", "head"):
        state = replace(state, **{field: value})
        session.write(state)
    elif field == "algorithm":
        tiles = with_algorithm(tiles, value)
    elif field == "query_tile":
        tiles = replace(tiles, query_tile=value, row=None, step=0)
    elif field == "causal":
        tiles = replace(tiles, causal=value, step=0)
    else:  # the same step, broken or whole: that is what is compared
        tiles = replace(tiles, broken=None if value == WHOLE else value)
    write(state, tiles)


@guarded_callback
def take_tile(tile: tuple[int, int]) -> None:
    state = session.state()
    write(state, with_tile(chosen(state), tile))
