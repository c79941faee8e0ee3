"""The Python side of the tile player: sends the walk down once, hands the visitor's place up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from app.components.one_script import one_script
from app.components.tile_player.blob import Packed
from app.components.tile_player.data import PlayerData, PlayerEvent

FOLDER = Path(__file__).parent
MODULES = (
    "../patch_canvas/words.js",
    "../patch_canvas/blob.js",
    "../patch_canvas/colours.js",
    "../patch_canvas/geometry.js",
    "../patch_canvas/dom.js",
    "../patch_canvas/photo.js",
    "numbers.js",
    "walk.js",
    "steady.js",
    "plane.js",
    "patches.js",
    "tile.js",
    "maps.js",
    "lanes.js",
    "values.js",
    "formula.js",
    "state.js",
    "code.js",
    "controls.js",
    "player.js",
    "main.js",
)
"""In the order of their imports: what a file uses stands before it."""


def modules() -> str:
    """All modules as one script, for Streamlit and for a page that plays offline; `main.js` says how."""
    return one_script(FOLDER, MODULES)


def style() -> str:
    """The player's rules of style; without Streamlit's variables they fall back to a light page."""
    return (FOLDER / "style.css").read_text("utf-8")


_component = component("tile_player", css=style(), js=modules())


def tile_player(
    data: PlayerData, key: str, on_change: Callable[[], None] | None = None
) -> PlayerEvent | None:
    """Draw the player. Returns where the visitor has stopped, once for each stop; None otherwise.

    The browser keeps its own place: while `data` opens where the visitor already stands, the bytes stay
    what they were and Streamlit does not send them again. Another place in `data` moves the player.
    """
    packed = Packed(data)
    memory = st.session_state.setdefault(f"{key} memory", Memory())
    sent = _sent(key)
    event, seq = None, memory.seq
    if sent.get("walk") == packed.walk_id and _all_whole(sent, "step", "row", "seq"):
        event, seq = data.place(sent["step"], sent["row"]), sent["seq"]
    wanted = data.place(data.start_step, data.followed_row)
    if memory.walk_id != packed.walk_id or wanted not in (memory.wanted, event):
        memory.opened, memory.opened_seq = wanted, seq
    is_new = event is not None and (memory.walk_id != packed.walk_id or seq != memory.seq)
    memory.walk_id, memory.wanted, memory.seq = packed.walk_id, wanted, seq
    _component(
        key=key,
        data=packed.blob(memory.opened.step, memory.opened.row, memory.opened_seq),
        on_place_change=on_change or _nothing,
    )
    return event if is_new else None


@dataclass
class Memory:
    """What was sent to the browser of one session, and what came back."""

    walk_id: str = ""
    opened: PlayerEvent = field(default_factory=lambda: PlayerEvent(0, 0))
    opened_seq: int = 0
    wanted: PlayerEvent | None = None
    seq: int = 0


def _sent(key: str) -> dict[str, Any]:
    """What the browser sent last; empty before its first change."""
    state = st.session_state.get(key)
    sent = state.get("place") if isinstance(state, Mapping) else None
    return dict(sent) if isinstance(sent, Mapping) else {}


def _all_whole(sent: Mapping[str, object], *names: str) -> bool:
    values = [sent.get(name) for name in names]
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _nothing() -> None:
    """Streamlit reports a state only if it has a callback."""
