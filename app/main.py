"""The frame: page settings, then the page that the visitor has chosen.

Run it with `streamlit run app/main.py` from the repository's root.
"""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:  # Streamlit puts this file's folder there, not the repository
    sys.path.insert(0, ROOT)

from app.controls.cost import cost_panel  # noqa: E402
from app.guard import guarded  # noqa: E402
from app.pages import PAGES  # noqa: E402
from app.text import en  # noqa: E402
from app.theme import COST_CSS, CSS, FRAME, FRAME_CSS, PAGE, SIDE  # noqa: E402


@guarded
def frame() -> None:
    """Pages as words on top, the chosen one below, and beside it what it costs."""
    st.set_page_config(page_title=en.FRAME["title"], layout="wide")
    st.html(CSS + FRAME_CSS + COST_CSS)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.title(en.FRAME["title"], anchor=False, width="content")
        st.caption(en.FRAME["lead"], width="content")
    pages = [
        st.Page(guarded(view.draw), title=view.title, url_path=view.path, default=view is PAGES[0])
        for view in PAGES
    ]
    chosen = st.navigation(pages, position="top")
    with st.container(key=FRAME):
        # The page stands first for whoever reads or scrolls; a wide screen shows the panel left of
        # it. The panel is drawn first all the same: a large picture would keep it waiting.
        page, side = st.container(key=PAGE), st.container(key=SIDE)
        with side:
            cost_panel()
        with page:
            chosen.run()


frame()
