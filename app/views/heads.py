"""Heads: where does each head look? The picture, every head, the proof."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import compute, session
from app.arrival import settled
from app.components.patch_canvas import (
    CanvasData,
    Limits,
    Selection,
    latest_selection,
    patch_canvas,
)
from app.controls.evidence import evidence
from app.controls.pictures import camera_choice, picture_choice, upload_choice
from app.controls.save import Saved, save_choice
from app.controls.size import model_choice, size_choice, square_choice
from app.controls.tiles_link import walk_link
from app.controls.traced import traced
from app.guard import guarded
from app.state import State, selection, with_selection
from app.text import en
from vit.image import Photo
from vit.trace import Trace

CANVAS = "canvas"


def page() -> None:
    """Choose, then look."""
    state = settled()
    shown = compute.photo(state.picture, state.square)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        picture_choice()
        upload_choice()
        size_choice(state, shown)
        model_choice(state)
    with st.container(horizontal=True, vertical_alignment="center"):
        square_choice(state)
        camera_choice()
        st.caption(f"{en.PICTURE['upload_hint']} {en.PICTURE['privacy']}", width="content")
    session.show_notices()
    st.markdown(en.HEADS.get(f"try_{state.picture}", en.HEADS["try_other"]))
    looking()


@st.fragment
@guarded
def looking() -> None:
    """What a click redraws: trace once, then one query's maps, then their proof."""
    state = session.state()
    here = traced(state)
    if here is None:
        return
    shown, trace = here.photo, here.trace
    chosen = newest(state, trace)
    state = with_selection(state, chosen)
    session.write(state)
    maps = draw(state, chosen, shown, trace)
    walk_link(state)
    evidence(trace, chosen.layer, chosen.query, here.self_test)
    save_choice(
        Saved(
            state=state,
            selection=chosen,
            jpeg=compute.screen_jpeg(shown),
            size=shown.picture.size,
            grid=trace.grid,
            maps=maps,
            log_sum_exp=trace.layers[chosen.layer].log_sum_exp[0].cpu().numpy(),
            implementation=trace.implementation,
        )
    )


def newest(state: State, trace: Trace) -> Selection:
    """The selection in the address, with what was clicked on the canvas since."""
    grid = trace.grid
    limits = Limits(len(trace.layers), trace.heads, grid.rows, grid.columns, trace.prefix)
    return latest_selection(CANVAS, selection(state), limits)


def draw(state: State, chosen: Selection, shown: Photo, trace: Trace) -> np.ndarray:
    """The canvas. Returns the maps [heads, rows, columns] of the chosen layer."""
    found = compute.maps(state, trace, chosen.query, chosen.direction)
    pinned = None
    if chosen.pin is not None:
        pinned = compute.maps(state, trace, chosen.pin, chosen.direction).values.numpy()
    patch_canvas(
        CanvasData(
            picture=compute.screen_jpeg(shown),
            size=shown.picture.size,
            grid=trace.grid,
            prefix=trace.prefix,
            maps=found.values.numpy(),
            pinned=pinned,
            facts=found.facts,
            words=en.CANVAS,
        ),
        chosen,
        key=CANVAS,
    )
    patches = found.values[chosen.layer, :, len(trace.prefix) :]
    return patches.unflatten(-1, (trace.grid.rows, trace.grid.columns)).numpy()
