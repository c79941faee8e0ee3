"""Below a walk: what the kernel of a twin does besides, and the backward pass that has no walk."""

from __future__ import annotations

import streamlit as st

from app.components.tile_player import StoryLines, story_lines
from app.controls.turns_figure import taking_turns
from app.memory import in_words
from app.text.tiles import BEYOND
from app.walks import BACKWARD
from kernels import Problem
from kernels.trace import Walk
from kernels.traffic import formula, loops_fa3_backward
from kernels.traffic.sizes import Sizes

MOST_LINES, MOST_PX = 8, 190
"""Longer code scrolls."""


GPU = "sm_90"
"""The one that fa3 is made for."""


def beyond(walk: Walk) -> None:
    """Below a backward walk the other backward pass; below a walk of a twin also what the kernel itself does."""
    if walk.implementation == BACKWARD:
        backward(walk)
    if not walk.note:
        return
    st.markdown(f"**{BEYOND['title']}**")
    st.markdown(BEYOND["text"])
    st.html(taking_turns())
    backward(walk)
    with st.expander(BEYOND["steps"]):
        for one in story_lines(walk.implementation):
            step(one)


def backward(walk: Walk) -> None:
    """What fa3's backward pass does instead of a walk, and its bytes beside fa2's."""
    st.markdown(f"**{BEYOND['backward_title']}**")
    st.markdown(backward_words(walk))


def backward_words(walk: Walk) -> str:
    """By formula, for the whole head as a GPU would take it."""
    tokens = walk.tokens
    head = Problem(1, 1, tokens, tokens, walk.head_dim, "float16", walk.causal)
    sizes = Sizes.of(head, GPU)
    if not loops_fa3_backward.in_one_pass(sizes):
        return BEYOND["backward_fa2"]
    return BEYOND["backward"].format(
        ours=in_words(formula(head, "fa3", "backward", GPU).total),
        shares=in_words(sum(loops_fa3_backward.shares_of_dq(sizes))),
        theirs=in_words(formula(head, "fa2", "backward", GPU).total),
    )


def step(one: StoryLines) -> None:
    """Title, words and code."""
    st.markdown(f"**{one.title}**")
    st.markdown(one.text)
    st.caption(BEYOND["place"].format(file=one.file, line=one.first_line))
    height = MOST_PX if len(one.lines) > MOST_LINES else "content"
    st.code("\n".join(one.lines), "python", height=height)
