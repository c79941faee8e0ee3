"""The last net: what nobody foresaw becomes one sentence on the screen and a report in the log."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st

from app import session
from app.text import en
from app.trouble import sentence_of

LOG = logging.getLogger("flashlens")
P = ParamSpec("P")


def guarded(draw: Callable[P, None]) -> Callable[P, None]:
    """A page, or a part of one, that shows a sentence where it would show a traceback."""

    @functools.wraps(draw)
    def safely(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            draw(*args, **kwargs)
        except Exception as fault:
            st.error(in_words(fault))

    return safely


def guarded_callback(change: Callable[P, None]) -> Callable[P, None]:
    """A callback that keeps the last good state and tells what went wrong on the next run."""

    @functools.wraps(change)
    def safely(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            change(*args, **kwargs)
        except Exception as fault:
            session.tell(in_words(fault))

    return safely


def in_words(fault: Exception) -> str:
    """The fault's own sentence if it brings one; else the general one, and a report in the log."""
    sentence = sentence_of(fault)
    if sentence is None:
        LOG.error("Unforeseen fault", exc_info=fault)
        return en.TROUBLE["unforeseen"]
    return sentence
