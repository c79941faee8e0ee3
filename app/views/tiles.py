"""Tiles: how does the kernel get there? One query tile walked through a head, step by step."""

from __future__ import annotations

import streamlit as st

from app import compute, session
from app.arrival import settled
from app.controls import tiles as choices
from app.controls.save_walk import origin_of, save_walk_choice
from app.controls.tiles_beyond import beyond
from app.controls.tiles_picture import picture_popover
from app.controls.tiles_player import player, player_data
from app.controls.tiles_proof import proof
from app.controls.traced import traced
from app.guard import guarded
from app.state import State
from app.state_tiles import Tiles, tile_of
from app.text.tiles import PAGE
from app.walks import Walked
from vit.trace import Trace

TO_THE_TOP = """<script>
document.querySelector('[data-testid="stMain"]').scrollTo(0, 0);
</script>"""
"""A page opened from a link far down another one would stand as far down."""


def page() -> None:
    """What is walked, the walk, and its proof."""
    arrives = choices.arrives()
    state = settled()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(PAGE["lead"], width="stretch")
        picture_popover(state)
    walking()
    if arrives:
        st.html(TO_THE_TOP, unsafe_allow_javascript=True)


@st.fragment
@guarded
def walking() -> None:
    """What a choice redraws: one walk, the player, and the proof under it."""
    state = session.state()
    here = traced(state)
    if here is None:
        return
    shown, trace = here.photo, here.trace
    tiles = choices.possible(state, trace)
    choices.write(state, tiles)
    with st.container():  # notices come and go, and nothing below them moves in the page's order
        session.show_notices()
    choices.tiles_choice(state, tiles, choices.head_of(state, trace))
    found = walks(state, trace, tiles)
    data = player_data(state, tiles, shown, trace, found)
    player(data)
    proof(found[0], found[1] if len(found) > 1 else None)
    beyond(found[0].walk)
    save_walk_choice(data, origin_of(state))


def walks(state: State, trace: Trace, tiles: Tiles) -> list[Walked]:
    """The right walk, and the broken one where one is asked for; one line says what is going on."""
    query_tile = tile_of(tiles, trace.token(state.query))
    line = st.empty()
    line.caption(choices.subject(state, trace, tiles, PAGE["walking"]))
    whole = compute.walked(state, trace, choices.whole(tiles), query_tile)
    found = [whole, *([compute.walked(state, trace, tiles, query_tile)] if tiles.broken else [])]
    subject = choices.subject(state, trace, tiles, PAGE["subject"])
    line.caption(f"{subject} {whole.walk.note}".rstrip())
    return found
