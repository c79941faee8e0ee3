"""A question with the way to the page Tiles, where the player answers it."""

from __future__ import annotations

import streamlit as st

from app.state import State, to_url
from app.state_tiles import PATH, Tiles
from app.state_tiles import to_url as tiles_to_url
from app.text.why import PAGE


def try_it(question: str, state: State, tiles: Tiles, key: str) -> None:
    """The question, and a link that opens the walk with these choices on the picture at hand.

    Without a page Tiles the question stands alone.
    """
    with st.container(border=True, key=f"try-{key}", gap="small"):
        st.markdown(f"**{PAGE['try']}:** {question}")
        target = tiles_page()
        if target is not None:
            st.page_link(
                target, label=PAGE["tiles"], query_params=to_url(state) | tiles_to_url(tiles)
            )


def tiles_page() -> st.Page | None:
    """The page as the frame has registered it; Streamlit knows pages by their place in the address."""
    from app.pages import PAGES  # at call: the list names the view that calls this

    found = next((view for view in PAGES if view.path == PATH), None)
    return None if found is None else st.Page(found.draw, title=found.title, url_path=found.path)
