"""The way from a head's maps to its walk."""

from __future__ import annotations

import streamlit as st

from app.controls.try_it import tiles_page
from app.state import State, to_url
from app.text.tiles import LINK


def walk_link(state: State) -> None:
    """A link that keeps picture, layer, head and query; the page Tiles finds the tile of that query."""
    with st.container(key="walk-link"):
        st.page_link(
            tiles_page(),
            label=LINK["label"],
            icon=":material/arrow_forward:",
            icon_position="right",
            query_params=to_url(state),
        )
