"""The Python side of the canvas: sends the maps down, hands the visitor's selection up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from app.components.one_script import one_script
from app.components.patch_canvas.blob import CanvasData, pack
from app.components.patch_canvas.selection import Limits, Selection

FOLDER = Path(__file__).parent
MODULES = (
    "words.js",
    "blob.js",
    "colours.js",
    "geometry.js",
    "dom.js",
    "sender.js",
    "photo.js",
    "picture.js",
    "heads.js",
    "overview.js",
    "facts.js",
    "large.js",
    "main.js",
)
"""In the order of their imports: what a file uses stands before it."""


def bundle() -> str:
    """All modules as one script."""
    return one_script(FOLDER, MODULES)


_component = component("patch_canvas", css=(FOLDER / "style.css").read_text("utf-8"), js=bundle())


def latest_selection(key: str, selection: Selection, limits: Limits) -> Selection:
    """The visitor's newest change on the canvas `key` since the last call, else `selection`.

    Ask before computing maps (or in `on_change`), so that one run of the script answers a click.
    A change counts once: afterwards the caller's own selection stands, so other controls and the
    URL can move the canvas too.
    """
    sent = _sent(key)
    seq = sent.get("seq")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq == _seen(key):
        return selection
    st.session_state[_memory(key)] = seq
    return Selection.from_browser(sent, selection, limits)


def patch_canvas(
    data: CanvasData,
    selection: Selection,
    key: str,
    on_change: Callable[[], None] | None = None,
) -> Selection:
    """Draw the canvas and return the selection as the visitor last left it.

    `data` belongs to `selection`. If the returned selection has another query, direction or pin, the
    visitor has moved on and its maps are owed to the next run.
    """
    answered = _seen(key)
    newest = latest_selection(key, selection, data.limits)
    _component(
        key=key,
        data=pack(data, selection, answered),
        on_selection_change=on_change or _nothing,
    )
    return newest


def _sent(key: str) -> Mapping[str, object]:
    """What the browser sent last; empty before its first change."""
    state = st.session_state.get(key)
    sent = state.get("selection") if isinstance(state, Mapping) else None
    return sent if isinstance(sent, Mapping) else {}


def _memory(key: str) -> str:
    return f"{key} answered"


def _seen(key: str) -> int:
    """The number of the visitor's last change that was taken in."""
    return st.session_state.get(_memory(key), 0)


def _nothing() -> None:
    """Streamlit reports a state only if it has a callback."""
