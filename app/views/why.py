"""How it works: seven short parts on why tiles give the softmax of the whole row, with less traffic and less waiting.

Sources: Dao et al. 2022 (FlashAttention), Dao 2023 (FlashAttention-2), Milakov and Gimelshein 2018 (online softmax),
Shah et al. 2024 (FlashAttention-3), Osama et al. 2023 (Stream-K);
the sections are named where the text uses them, in `app.text.why`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from app import compute, session
from app.arrival import settled
from app.components.merge_formula import merge_formula
from app.controls import why_figures as figures
from app.controls.cost_chip import Chip, chip_of
from app.controls.try_it import try_it
from app.controls.turns_figure import taking_turns
from app.figures.memories import memories
from app.state import State
from app.state_tiles import Tiles
from app.text.why import (
    AT_ONCE,
    LAST_WAVE,
    LOOPS,
    MEMORY,
    MERGE,
    MERGE_TEXT,
    NOT,
    PAGE,
    PRESETS,
    SAFE,
    SOURCES,
)
from kernels import Problem

WIDTH_PX = 760
"""Lines of text that the eye finds its way back in."""

START = ((1.0, 3.0, 2.0), (0.5, 5.0, 4.0))
SCORES = {
    "start": START,
    "equal": ((2.0, 2.0, 2.0), (2.0, 2.0, 2.0)),
    "far": ((7.5, 8.0, 6.0), (-6.0, -8.0, -7.0)),
}


def page() -> None:
    """The parts in their order, then where all this comes from."""
    state = settled()
    problem, chip = compute.problem(state), chip_of(compute.device())
    session.show_notices()
    with st.container(width=WIDTH_PX):
        st.markdown(PAGE["lead"])
        for part in PARTS:
            part(state, problem, chip)
        for text, link in SOURCES:
            small(f"{text} [{link}]({link})")


def small(text: str) -> None:
    """Small, but not pale: a caption is too pale to be read by everyone."""
    st.markdown(PAGE["small"].format(text=text))


def memory_part(state: State, problem: Problem, chip: Chip) -> None:
    """SRAM, L2, HBM."""
    st.subheader(MEMORY["title"], anchor="memories")
    st.markdown(MEMORY["text"])
    st.html(memories(figures.memory_levels(chip, figures.hbm_bytes(compute.device()))))
    rates = figures.rates()
    if rates is not None:
        small(rates)
    st.markdown(figures.yours(problem, chip))
    try_it(MEMORY["question"], state, Tiles(), "memory")


def safe_part(state: State, problem: Problem, chip: Chip) -> None:
    """The maximum taken out."""
    limits = {"half": figures.overflow(np.float16), "single": figures.overflow(np.float32)}
    st.subheader(SAFE["title"], anchor="safe-softmax")
    words = {"literal": SAFE["literal"], "power": SAFE["power"]}
    st.markdown(SAFE["text"].format(**limits, **words))
    for formula in SAFE["formulas"]:
        st.latex(formula)
    st.markdown(SAFE["after"])
    question = SAFE["question"].format(**limits)
    try_it(question, state, Tiles(broken="no-maximum"), "safe")


def merge_part(state: State, problem: Problem, chip: Chip) -> None:
    """Two blocks joined, with sliders."""
    st.subheader(MERGE_TEXT["title"], anchor="merge")
    st.markdown(MERGE_TEXT["text"])
    presets = [(PRESETS[name], scores) for name, scores in SCORES.items()]
    merge_formula(MERGE, START, presets, key="merge-formula")
    st.markdown(MERGE_TEXT["circulating"])
    st.latex(MERGE_TEXT["circulating_formula"])
    st.markdown(MERGE_TEXT["circulating_why"])
    try_it(MERGE_TEXT["question"], state, Tiles(broken="output-not-rescaled"), "merge")


def loops_part(state: State, problem: Problem, chip: Chip) -> None:
    """Keys outside, then queries outside."""
    st.subheader(LOOPS["title"], anchor="loops")
    st.markdown(LOOPS["text"])
    gpu = LOOPS["this_gpu" if chip.here else "recorded_gpu"]
    st.markdown(LOOPS["reasons"].format(heads=problem.heads, gpu=gpu, sms=chip.sizes.sms))
    st.markdown(LOOPS["bytes"].format(dtype=problem.dtype))
    st.table(figures.head_bytes(problem), hide_index=True, width="content")
    try_it(LOOPS["question"], state, Tiles(algorithm="fa1"), "loops")


def at_once_part(state: State, problem: Problem, chip: Chip) -> None:
    """Warps with different jobs, a product behind each softmax, turns; and eight bits."""
    st.subheader(AT_ONCE["title"], anchor="at-once")
    st.markdown(AT_ONCE["text"])
    st.markdown(AT_ONCE["reasons"])
    st.html(taking_turns())
    st.markdown(AT_ONCE["worth"])
    st.markdown(figures.exponentials(problem))
    st.markdown(AT_ONCE["eight_bits"])
    try_it(AT_ONCE["question"], state, Tiles(algorithm="fa3"), "at-once")


def last_wave_part(state: State, problem: Problem, chip: Chip) -> None:
    """The last wave, cut along the keys."""
    st.subheader(LAST_WAVE["title"], anchor="last-wave")
    st.markdown(LAST_WAVE["text"])
    st.markdown(figures.waves(problem, chip))
    st.markdown(LAST_WAVE["cut"])
    try_it(LAST_WAVE["question"], state, Tiles(algorithm="fa3", tile=(16, 64)), "last-wave")


def not_part(state: State, problem: Problem, chip: Chip) -> None:
    """Four things that it is taken for."""
    st.subheader(NOT["title"], anchor="not")
    st.markdown(NOT["text"])
    small(figures.law(problem, chip))
    try_it(NOT["question"], state, Tiles(tile=(16, 16)), "not")


PARTS: tuple[Callable[[State, Problem, Chip], None], ...] = (
    memory_part,
    safe_part,
    merge_part,
    loops_part,
    at_once_part,
    last_wave_part,
    not_part,
)
