"""Below a walk of a twin: what the kernel itself does besides, in a drawing and in its own steps."""

from __future__ import annotations

import streamlit as st

from app.components.tile_player import StoryLines, story_lines
from app.controls.turns_figure import taking_turns
from app.text.tiles import BEYOND
from kernels.trace import Walk

MOST_LINES, MOST_PX = 8, 190
"""Longer code scrolls."""


def beyond(walk: Walk) -> None:
    """Nothing where the walk is the kernel's own."""
    if not walk.note:
        return
    st.markdown(f"**{BEYOND['title']}**")
    st.markdown(BEYOND["text"])
    st.html(taking_turns())
    with st.expander(BEYOND["steps"]):
        for one in story_lines(walk.implementation):
            step(one)


def step(one: StoryLines) -> None:
    """Title, words and code."""
    st.markdown(f"**{one.title}**")
    st.markdown(one.text)
    st.caption(BEYOND["place"].format(file=one.file, line=one.first_line))
    height = MOST_PX if len(one.lines) > MOST_LINES else "content"
    st.code("\n".join(one.lines), "python", height=height)
