"""A bar with a sentence while something takes longer than a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from app.compute import Tell


@contextmanager
def telling() -> Iterator[Tell]:
    """Hand out a function that moves the bar; the bar is gone when the work is done.

    Each call is also where Streamlit stops the work of a visitor who has left or chosen anew.
    """
    place = st.empty()

    def tell(done: float, sentence: str) -> None:
        place.progress(min(max(done, 0.0), 1.0), sentence)

    try:
        yield tell
    except Exception:
        place.empty()  # a sentence follows; a stopped visitor's page is not touched any more
        raise
    place.empty()
