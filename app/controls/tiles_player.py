"""The walk itself: the player, what it is given, and where the visitor stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

import streamlit as st

from app import chip, compute, session
from app.components.tile_player import OnChip, PlayerData, story_lines, tile_player
from app.controls import tiles as choices
from app.guard import guarded_callback
from app.state import State
from app.state_tiles import Tiles, row_of, rows_of, tile_of
from app.text.player import PLAYER
from app.text.tiles import CHOICE, PAGE
from app.walks import Walked
from kernels.trace import BROKEN
from vit.image import Photo
from vit.trace import Trace

PLAYER_KEY, ROWS_START = "player", "player rows start"


def player_data(
    state: State, tiles: Tiles, shown: Photo, traced: Trace, found: list[Walked]
) -> PlayerData:
    """What the player shows. `found` is the right walk, and the broken one where there is one."""
    right = found[0].walk
    query = traced.token(state.query)
    rows = rows_of(tile_of(tiles, query), tiles.block_q, traced.tokens)
    return PlayerData(
        picture=compute.screen_jpeg(shown),
        size=shown.picture.size,
        grid=traced.grid,
        prefix=traced.prefix,
        walk=right,
        broken_walk=found[1].walk if len(found) > 1 else None,
        story=story_lines(tiles.algorithm),
        on_chip=on_chip(tiles, right.head_dim, right.dtype),
        words=PLAYER,
        start_step=min(tiles.step, len(right.steps) - 1),
        followed_row=row_of(tiles, rows, query) - rows.start,
        broken_note=note_of(tiles.broken),
        caption=PAGE["caption"].format(layer=state.layer, head=state.head),
        tags={"bytes": right.bytes_source, "on_chip": "formula", "error": "measured"},
    )


def player(data: PlayerData) -> None:
    """Draw it. Where the visitor stops goes into the address, and costs no new walk."""
    st.session_state[ROWS_START] = data.walk.query_start
    tile_player(data, key=PLAYER_KEY, on_change=take_place)


@guarded_callback
def take_place() -> None:
    """Keep the step and the followed row that the browser has sent."""
    place = place_in(st.session_state[PLAYER_KEY].get("place"))
    if place is None:
        return
    state, (step, row) = session.state(), place
    token = st.session_state[ROWS_START] + row
    choices.write(state, replace(choices.chosen(state), step=step, row=token))


def place_in(sent: object) -> tuple[int, int] | None:
    """Step and row, from 0, or None for what no player sends."""
    if not isinstance(sent, Mapping):
        return None
    step, row = sent.get("step"), sent.get("row")
    return (step, row) if is_place(step) and is_place(row) else None


def is_place(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6


def on_chip(tiles: Tiles, head_dim: int, dtype: str) -> OnChip:
    """What one program holds, against this machine's GPU or the recorded one."""
    limit = chip.limit_of(compute.device())
    return OnChip(
        parts=chip.parts(tiles.algorithm, tiles.tile, head_dim, dtype),
        limit_bytes=limit.bytes,
        l2_bytes=limit.l2_bytes,
        gpu=CHOICE["this_gpu" if limit.here else "recorded_gpu"],
    )


def note_of(broken: str | None) -> str:
    """What is dropped, why that goes wrong, and when it happens to be right."""
    if broken is None:
        return ""
    one = BROKEN[broken]
    return f"{one.wrong} {one.why} {one.exact_when}"
