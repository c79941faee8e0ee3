"""The tile player alone, on a played walk of known numbers; `?case=` chooses it.

python -m streamlit run tests/browser/player_playground.py
"""

from __future__ import annotations

import json

import streamlit as st

from app.components.tile_player import tile_player
from tests.browser.player_cases import CASES, player_data

st.set_page_config(layout="wide")
case = CASES[st.query_params.get("case", "fa2")]
if st.button("Open step 3 from outside"):
    st.session_state.place = (2, 5)
step, row = st.session_state.get("place", (0, 0))
event = tile_player(player_data(case, step, row), key="playground")
if event is not None:
    st.session_state.place = (event.step, event.row)
    st.session_state.heard = st.session_state.get("heard", 0) + 1
told = {"place": st.session_state.get("place"), "heard": st.session_state.get("heard", 0)}
st.text("python " + json.dumps(told))
