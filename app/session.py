"""The state of the visitor at hand. It lives in the address; this is its only way in and out."""

from __future__ import annotations

import secrets

import streamlit as st

from app.state import NAMES, State, from_url, to_url
from app.text import en

NOTICES, KEPT, OWNER = "notices", "kept state", "owner"


def state() -> State:
    """What the address says; what it says wrongly is told once.

    A change of page empties the address; then it is what this visitor last had on the screen.
    """
    params = st.query_params.to_dict()
    kept = st.session_state.get(KEPT)
    if kept is not None and not NAMES & params.keys():
        return kept
    found, dropped = from_url(params)
    for name in dropped:
        tell(en.FRAME["bad_link"].format(name=name))
    if dropped:
        write(found)
    return found


def write(state: State) -> None:
    """Put the state into the address, if it is not there yet (each change is a step of "back").

    A page's own parameters stay.
    """
    st.session_state[KEPT] = state
    now = st.query_params.to_dict()
    params = {name: value for name, value in now.items() if name not in NAMES} | to_url(state)
    if now != params:
        st.query_params.from_dict(params)


def owner() -> str:
    """A random name for this visitor, so that measurements find their way back."""
    return st.session_state.setdefault(OWNER, secrets.token_urlsafe(12))


def tell(sentence: str) -> None:
    """Show a sentence in the next place for notices, once."""
    notices = st.session_state.setdefault(NOTICES, [])
    if sentence not in notices:
        notices.append(sentence)


def show_notices() -> None:
    for sentence in st.session_state.pop(NOTICES, []):
        st.error(sentence)
