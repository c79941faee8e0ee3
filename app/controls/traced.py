"""The picture on the screen, traced: what every page that shows a head begins with."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app import compute
from app.controls.progress import telling
from app.state import State
from vit.image import Photo
from vit.trace import Trace


@dataclass(frozen=True)
class Traced:
    """A picture and its trace, on a machine whose kernels tell the truth."""

    photo: Photo
    trace: Trace
    self_test: str  # the sentence of the test


def traced(state: State) -> Traced | None:
    """None, and the reason on the screen, where the self-test fails: then nothing may be shown."""
    with telling() as tell:
        test = compute.tested(tell)
        if not test.passed:
            st.error(test.sentence)
            return None
        shown = compute.photo(state.picture, state.square)
        return Traced(shown, compute.trace(state, tell), test.sentence)
