"""The patch canvas alone, on the one-hot maps of canvas_cases.py; `?case=` chooses the grid.

python -m streamlit run tests/browser/canvas_playground.py
"""

from __future__ import annotations

import json
import time

import streamlit as st

from app.components.patch_canvas import (
    CanvasData,
    Limits,
    Selection,
    latest_selection,
    patch_canvas,
)
from app.text import en
from tests.browser.canvas_cases import CASES, picture, stub_facts, stub_maps
from vit.grid import PatchGrid

case = CASES[st.query_params.get("case", "square")]
st.set_page_config(layout="wide")
KEY = "playground"
limits = Limits(case.layers, case.heads, case.rows, case.columns, case.prefix)
if st.button("Open layer 1 from outside"):
    st.session_state.selection = Selection(1, 0, (0, 0))
present = st.session_state.get("selection", Selection(0, 0, (2, 3)))
chosen = latest_selection(KEY, present, limits)
st.session_state.selection = chosen
time.sleep(float(st.query_params.get("slow", "0")))

maps = stub_maps(case, chosen.query, chosen.direction)
patch_canvas(
    CanvasData(
        picture=picture(case.size),
        size=case.size,
        grid=PatchGrid(case.rows, case.columns, 14, case.box or (0.0, 0.0, *map(float, case.size))),
        prefix=case.prefix,
        maps=maps,
        pinned=None if chosen.pin is None else stub_maps(case, chosen.pin, chosen.direction),
        facts=stub_facts(case, maps),  # pyright: ignore[reportArgumentType]
        words=en.CANVAS,
    ),
    chosen,
    key=KEY,
)
st.text("python " + json.dumps(chosen.as_json()))
