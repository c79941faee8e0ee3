"""Speed and memory: how do time, memory and bytes grow? Choose, measure, compare with the record."""

from __future__ import annotations

import streamlit as st

from app import session
from app.controls import sweep as choices
from app.controls.sweep_recorded import recorded_section
from app.controls.sweep_run import results, start_choice
from app.text.speed import PAGE


def page() -> None:
    """What to measure, the measurement, and what was recorded elsewhere."""
    sweep = choices.chosen()
    choices.write(sweep)
    st.markdown(PAGE["lead"])
    with st.container():  # notices come and go, and nothing below them moves in the page's order
        session.show_notices()
    choices.sweep_choice(sweep)
    choices.missing_choice(sweep)
    start_choice(sweep)
    results(sweep)
    recorded_section()
