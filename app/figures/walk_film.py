"""A walk as a film, GIF or WebP, and one step of it as PNG."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from app.components.tile_player.data import PlayerData
from app.figures.sheet import png
from app.figures.walk_places import (
    EDGE,
    HOLLOW,
    KEY,
    KEY_ON_PHOTO,
    QUERY,
    QUERY_ON_PHOTO,
    VISITED,
    photo,
)
from app.figures.walk_still import Scene, draw, scene
from app.origin import Origin, lines
from app.theme import INK, PAPER, QUIET
from vit.colours import probability_table

MOST_FRAMES = 120
MOST_BYTES = 5_000_000
SHRINKS = (2, 3, 4)
"""By how much a still is made smaller for a frame; the first that keeps a film below MOST_BYTES is taken."""

ON_PHOTO = (QUERY_ON_PHOTO, KEY_ON_PHOTO)
PHOTOS = 6
SCALE_COLOURS, GREYS = 64, 12
"""Of a GIF's 256; most of the others are the picture's."""
WEBP = {"quality": 82, "method": 2}

WHOLE_MS, SHORTEST_MS, LONGEST_MS, LAST_MS = 14_000, 100, 700, 3_000
"""About how long a film lasts, each frame's limits, and how long the last one stays."""


Encode = Callable[["Frames"], bytes]


@dataclass(frozen=True)
class Frames:
    """A film's frames, drawn one at a time as they are asked for: a still is 8 MB."""

    shown: Scene
    steps: tuple[int, ...]
    shrink: int

    def __len__(self) -> int:
        return len(self.steps)

    def frame(self, place: int) -> Image.Image:
        return draw(self.shown, self.steps[place]).reduce(self.shrink)

    def __iter__(self) -> Iterator[Image.Image]:
        return (self.frame(place) for place in range(len(self)))


def step_png(data: PlayerData, origin: Origin, step: int) -> bytes:
    """One step, at twice the size of a film's frame.

    Raises:
        ValueError: the walk has no such step.
    """
    if not 0 <= step < len(data.walk.steps):
        raise ValueError(f"The walk has steps 0 to {len(data.walk.steps) - 1}, not {step}.")
    return png(draw(scene(data, lines(origin, data.walk, data.broken_walk)), step))


def as_gif(data: PlayerData, origin: Origin) -> bytes:
    """The film with at most 256 colours, one set of them for all frames."""
    return bounded(data, origin, gif)


def as_webp(data: PlayerData, origin: Origin) -> bytes:
    """The film in all colours."""
    return bounded(data, origin, lambda frames: saved(iter(frames), len(frames), "WEBP", **WEBP))


def gif(frames: Frames) -> bytes:
    palette = palette_of(frames)
    few = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames)
    return saved(few, len(frames), "GIF", optimize=False)


def palette_of(frames: Frames) -> Image.Image:
    """The maps' scale, the colours that are drawn with, greys for the letters, and the picture's own."""
    scale = probability_table(SCALE_COLOURS)
    greys = np.linspace(INK, PAPER, GREYS)
    drawn = np.array([INK, PAPER, QUIET, HOLLOW, VISITED, EDGE, QUERY, KEY, *ON_PHOTO])
    fixed = np.concatenate([scale, greys, drawn]).round().astype(np.uint8)
    own = photos(frames).quantize(256 - len(fixed), Image.Quantize.MEDIANCUT).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*fixed.ravel().tolist(), *own[: 3 * (256 - len(fixed))]])
    return palette


def photos(frames: Frames) -> Image.Image:
    """The picture at a few steps, one below the other: its colours under queries and keys too."""
    shown, count = frames.shown, len(frames)
    wide, tall = shown.picture.size
    column = Image.new("RGB", (wide, tall * PHOTOS))
    for n in range(PHOTOS):
        step = frames.steps[n * (count - 1) // (PHOTOS - 1)]
        column.paste(photo(shown.data, step, shown.picture), (0, n * tall))
    return column


def bounded(data: PlayerData, origin: Origin, encode: Encode) -> bytes:
    """The film in the largest size that stays below the limit; in the smallest, whatever its size."""
    shown = scene(data, lines(origin, data.walk, data.broken_walk))
    film = b""
    for shrink in SHRINKS:
        film = encode(Frames(shown, chosen_steps(len(data.walk.steps)), shrink))
        if len(film) <= MOST_BYTES:
            break
    return film


def chosen_steps(count: int) -> tuple[int, ...]:
    """All steps, or as many of them as a film may have: evenly spread, first and last among them."""
    if count <= MOST_FRAMES:
        return tuple(range(count))
    return tuple(round(n * (count - 1) / (MOST_FRAMES - 1)) for n in range(MOST_FRAMES))


def saved(frames: Iterator[Image.Image], count: int, kind: str, **options: Any) -> bytes:
    """All frames in one file that repeats."""
    each = min(max(WHOLE_MS // count, SHORTEST_MS), LONGEST_MS)
    shown_ms = [each] * (count - 1) + [LAST_MS]
    if count == 1:
        shown_ms = LAST_MS
    file = io.BytesIO()
    next(frames).save(
        file, kind, save_all=True, append_images=frames, duration=shown_ms, loop=0, **options
    )
    return file.getvalue()
