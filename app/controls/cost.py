"""The side panel: what the attention on the screen costs, on this machine and recorded elsewhere."""

from __future__ import annotations

import streamlit as st

from app.guard import guarded
from app.text import cost as words


@st.fragment
@guarded
def cost_panel() -> None:
    """Bytes, time and memory of one layer's attention, and the button that measures them."""
    st.subheader(words.PANEL["title"], anchor=False)
