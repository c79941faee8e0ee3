"""The state of the visitor at hand. It lives in the address; this is its only way in and out."""

from __future__ import annotations

import streamlit as st

from app.state import State, from_url, to_url
from app.text import en

NOTICES = "notices"


def state() -> State:
    """What the address says; what it says wrongly is told once."""
    found, dropped = from_url(st.query_params.to_dict())
    for name in dropped:
        tell(en.FRAME["bad_link"].format(name=name))
    if dropped:
        write(found)
    return found


def write(state: State) -> None:
    """Put the state into the address, if it is not there yet (each change is a step of "back")."""
    params = to_url(state)
    if st.query_params.to_dict() != params:
        st.query_params.from_dict(params)


def tell(sentence: str) -> None:
    """Show a sentence in the next place for notices, once."""
    notices = st.session_state.setdefault(NOTICES, [])
    if sentence not in notices:
        notices.append(sentence)


def show_notices() -> None:
    for sentence in st.session_state.pop(NOTICES, []):
        st.error(sentence)
