"""The app without a browser."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

MAIN = Path(__file__).parents[2] / "app" / "main.py"


@pytest.fixture(autouse=True)
def same_main() -> Iterator[None]:
    """Streamlit puts the page's script in the place of the program; processes started later would run it."""
    program = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = program


@pytest.fixture
def visit() -> Callable[..., AppTest]:
    """Open the page with an address's parameters as a new visitor; small pictures unless it says."""

    def open_page(**params: str) -> AppTest:
        page = AppTest.from_file(MAIN, default_timeout=60)
        for name, value in ({"side": "224"} | params).items():
            page.query_params[name] = value
        return page.run()

    return open_page


@pytest.fixture
def fresh_server() -> Iterator[None]:
    """A server that has kept nothing yet, and that leaves nothing."""
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()
