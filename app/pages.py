"""PAGES: one line per view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.text import en
from app.views import heads


@dataclass(frozen=True)
class View:
    """One page: its word in the line on top, its place in the address, and what draws it."""

    title: str
    path: str
    draw: Callable[[], None]


PAGES = [
    View(en.FRAME["heads"], "heads", heads.page),
]
