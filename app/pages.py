"""PAGES: one line per view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.state_tiles import PATH as TILES_PATH
from app.text import en
from app.text import speed as speed_words
from app.text import tiles as tiles_words
from app.text import why as why_words
from app.views import heads, speed, tiles, why


@dataclass(frozen=True)
class View:
    """One page: its word in the line on top, its place in the address, and what draws it."""

    title: str
    path: str
    draw: Callable[[], None]


PAGES = [
    View(en.FRAME["heads"], "heads", heads.page),
    View(tiles_words.PAGE["title"], TILES_PATH, tiles.page),
    View(speed_words.PAGE["title"], "speed", speed.page),
    View(why_words.PAGE["title"], "how", why.page),
]
