"""A question with the way to the page Tiles, where the player answers it."""

from __future__ import annotations

import streamlit as st

from app.state import State, to_url
from app.state_tiles import PATH, Tiles
from app.state_tiles import to_url as tiles_to_url
from app.text.tiles import PAGE as TILES
from app.text.why import PAGE
from app.views.tiles import page


def try_it(question: str, state: State, tiles: Tiles, key: str) -> None:
    """The question, and a link that opens the walk with these choices on the picture at hand."""
    with st.container(border=True, key=f"try-{key}", gap="small"):
        st.markdown(f"**{PAGE['try']}:** {question}")
        st.page_link(
            tiles_page(),
            label=PAGE["tiles"],
            query_params=to_url(state) | tiles_to_url(tiles),
        )


def tiles_page() -> st.Page:
    """The page as the frame has registered it; Streamlit knows pages by their place in the address."""
    return st.Page(page, title=TILES["title"], url_path=PATH)
