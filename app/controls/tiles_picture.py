"""The picture and its size, folded away: on this page it is chosen seldom."""

from __future__ import annotations

import streamlit as st

from app import compute
from app.controls.pictures import picture_choice
from app.controls.size import size_choice, square_choice
from app.state import State
from app.text import en
from app.text.tiles import PAGE
from app.uploads import is_upload


def picture_popover(state: State) -> None:
    """Another sample or another size; a picture of one's own is brought on the page Heads."""
    word = "upload" if is_upload(state.picture) else state.picture
    title = en.PICTURE[f"title_{word}"]
    with st.popover(PAGE["picture"].format(title=title, side=state.side), key="tiles-picture"):
        picture_choice()
        size_choice(state, compute.photo(state.picture, state.square))
        square_choice(state)
