"""One step of a walk as a picture: the plane, the patches, the map so far, and the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from app.components.tile_player.data import PlayerData
from app.figures.sheet import fitted, font
from app.figures.walk_places import (
    HOLLOW,
    KEY_ON_PHOTO,
    QUERY_ON_PHOTO,
    band,
    bare,
    photo,
    plane,
    row_map,
)
from app.figures.walk_row import FLASH, weights_so_far
from app.memory import in_words
from app.text.export import IMPLEMENTATION, STILL
from app.theme import INK, PAPER, QUIET
from kernels.trace import Walk
from vit.colours import probability_table

SIDE = 620
"""Of the plane, and the longer side of picture and maps, in pixels."""
MARGIN, GAP, LINE = 56, 44, 44
TITLE_FONT, HEAD_FONT, TEXT_FONT, FOOT_FONT = 44, 34, 30, 26
BAR_HEIGHT = 12
ROWS = 4
"""Lines of numbers."""

Place = tuple[int, int]


@dataclass(frozen=True)
class Scene:
    """What is the same in every step of a walk."""

    data: PlayerData
    foot: tuple[str, ...]  # where the numbers come from
    panels: tuple[tuple[str, Walk], ...]  # the map and its broken twin
    picture: Image.Image
    band: Image.Image
    map_size: tuple[int, int]
    most: float  # at the end of the maps' scale


def scene(data: PlayerData, foot: tuple[str, ...]) -> Scene:
    """All that need not be drawn anew for each step."""
    left, top, right, bottom = data.grid.box
    return Scene(
        data=data,
        foot=foot,
        panels=maps(data),
        picture=bare(data, fitted(data.size, SIDE)),
        band=band(data.walk, SIDE),
        map_size=fitted((right - left, bottom - top), SIDE),
        most=top_of(data),
    )


def draw(shown: Scene, index: int) -> Image.Image:
    """Step `index`, at twice the size of a film's frame."""
    data, walk, step = shown.data, shown.data.walk, shown.data.walk.steps[index]
    lefts = places(shown)
    wide = max(lefts[-1] + shown.map_size[0], MARGIN + 3 * SIDE + 2 * GAP) + MARGIN
    top = MARGIN + 4 * LINE
    below = top + SIDE + 2 * LINE
    canvas = Image.new("RGB", (wide, below + (ROWS + 3 + len(shown.foot)) * LINE), PAPER)
    pen = ImageDraw.Draw(canvas)
    pen.text((MARGIN, MARGIN - 16), heading(walk), INK, font(TITLE_FONT))
    told = STILL["step"].format(
        step=index + 1,
        count=len(walk.steps),
        first=step.key_start,
        last=step.key_start + step.keys - 1,
    )
    pen.text((MARGIN, MARGIN + LINE), told, INK, font(HEAD_FONT))
    progress(
        pen, (MARGIN, MARGIN + 2 * LINE + 10), wide - 2 * MARGIN, (index + 1) / len(walk.steps)
    )
    stored = STILL["stored" if walk.implementation == "naive" else "unstored"]
    names = [f"{STILL['plane']}, {stored}", STILL["picture"], *(name for name, _ in shown.panels)]
    for left, name in zip(lefts, names, strict=True):
        pen.text((left, top - LINE), name, INK, font(TEXT_FONT))
    canvas.paste(plane(walk, index, SIDE, shown.band), (lefts[0], top))
    canvas.paste(photo(data, index, shown.picture), (lefts[1], top))
    legend(pen, (lefts[1], top + shown.picture.height + 16))
    draw_maps(canvas, pen, shown, index, top)
    numbers(pen, data, index, below, wide)
    for n, line in enumerate(shown.foot):
        pen.text((MARGIN, below + (ROWS + 1.6 + n) * LINE), line, QUIET, font(FOOT_FONT))
    return canvas


def places(shown: Scene) -> list[int]:
    """Where plane, picture and maps begin, from the left."""
    second = MARGIN + SIDE + GAP
    third = second + shown.picture.width + GAP
    steps = range(len(shown.panels))
    return [MARGIN, second, *(third + n * (shown.map_size[0] + GAP) for n in steps)]


def draw_maps(
    canvas: Image.Image, pen: ImageDraw.ImageDraw, shown: Scene, index: int, top: int
) -> None:
    """The followed row's weights so far, each map with its scale."""
    data, size = shown.data, shown.map_size
    for left, (_, walk) in zip(places(shown)[2:], shown.panels, strict=True):
        weights = weights_so_far(walk, index, data.followed_row)
        image = row_map(weights, shown.most, len(data.prefix), data.grid, size)
        canvas.paste(image, (left, top))
        scale(canvas, pen, (left, top + size[1] + 12), size[0], (shown.most, weights))


def heading(walk: Walk) -> str:
    return STILL["title"].format(
        implementation=IMPLEMENTATION[walk.implementation],
        first=walk.query_start,
        last=walk.query_start + walk.rows - 1,
        tokens=walk.tokens,
    )


def maps(data: PlayerData) -> tuple[tuple[str, Walk], ...]:
    """The maps side by side: the right one, and the broken one where there is one."""
    found = [(STILL["map"], data.walk)]
    if data.broken_walk is not None:
        found.append((STILL["map_broken"], data.broken_walk))
    return tuple(found)


def top_of(data: PlayerData) -> float:
    """The largest weight of a patch in the end, which all maps share as the end of their scale."""
    last = len(data.walk.steps) - 1
    final = weights_so_far(data.walk, last, data.followed_row)[len(data.prefix) :]
    finite = final[np.isfinite(final)]
    return float(finite.max()) if finite.size else 0.0


def scale(
    canvas: Image.Image,
    pen: ImageDraw.ImageDraw,
    place: Place,
    wide: int,
    shown: tuple[float, np.ndarray],
) -> None:
    """The colours from 0 to the top, and what the weights sum to."""
    most, weights = shown
    ramp = np.linspace(0, 255, wide).round().astype(np.uint8)
    canvas.paste(Image.fromarray(np.tile(probability_table()[ramp], (BAR_HEIGHT, 1, 1))), place)
    below = place[1] + BAR_HEIGHT + 4
    seen = ~np.isnan(weights)
    told = STILL["no_weights"]
    if seen.any():
        told = STILL["sum"].format(seen=int(seen.sum()), sum=float(weights[seen].sum()))
    pen.text((place[0], below), "0", INK, font(FOOT_FONT))
    pen.text((place[0] + wide, below), f"{most:.3g}", INK, font(FOOT_FONT), anchor="ra")
    pen.text((place[0] + wide // 2, below), told, QUIET, font(FOOT_FONT), anchor="ma")


def legend(pen: ImageDraw.ImageDraw, place: Place) -> None:
    """What the colours on the picture mean."""
    left, top = place
    for key, colour in (("queries", QUERY_ON_PHOTO), ("keys", KEY_ON_PHOTO), ("followed", None)):
        pen.rectangle(
            (left, top, left + 22, top + 22), colour, INK if colour is None else colour, 3
        )
        pen.text((left + 34, top - 4), STILL[key], INK, font(FOOT_FONT))
        left += 34 + round(pen.textlength(STILL[key], font(FOOT_FONT))) + 36


def progress(pen: ImageDraw.ImageDraw, place: Place, wide: int, share: float) -> None:
    """A thin line of how far the walk has come."""
    left, top = place
    pen.rectangle((left, top, left + wide, top + 6), HOLLOW)
    pen.rectangle((left, top, left + round(wide * share), top + 6), QUIET)


# --- the numbers ------------------------------------------------------------------------------------


def numbers(pen: ImageDraw.ImageDraw, data: PlayerData, index: int, top: int, wide: int) -> None:
    """Two columns of figures: the followed row, and what was moved."""
    half = MARGIN + (wide - 2 * MARGIN) // 2
    for left, column in ((MARGIN, row_figures(data, index)), (half, moved_figures(data, index))):
        for n, (name, value) in enumerate(column):
            y = top + LINE // 2 + n * LINE
            pen.text((left, y), name, QUIET, font(TEXT_FONT))
            pen.text((left + 250, y), value, INK, font(TEXT_FONT))


def row_figures(data: PlayerData, index: int) -> list[tuple[str, str]]:
    """What the kernel keeps for the followed row, before and after this step."""
    walk, row, step = data.walk, data.followed_row, data.walk.steps[index]
    figures = [(STILL["followed"], row_name(data))]
    if walk.implementation == "fa2-backward":
        names = ("max", "factor", "normaliser")
        return figures + [(STILL[name], STILL["not_needed"]) for name in names]
    same = index > 0 and walk.steps[index - 1].phase == step.phase
    before = walk.steps[index - 1] if same else None
    for key, values in (("max", "running_max"), ("normaliser", "running_sum")):
        new = written(getattr(step, values)[row].item())
        old = None if before is None else written(getattr(before, values)[row].item())
        shown = new if old is None else STILL["change"].format(old=old, new=new)
        figures.append((STILL[key], STILL["none"] if step.phase == "pairs" else shown))
    factor = written(step.rescale[row].item()) if walk.implementation in FLASH else None
    figures.insert(2, (STILL["factor"], factor or STILL["not_needed"]))
    return figures


def row_name(data: PlayerData) -> str:
    token = data.walk.query_start + data.followed_row
    if token < len(data.prefix):
        return STILL["token"].format(name=data.prefix[token])
    row, column = divmod(token - len(data.prefix), data.grid.columns)
    return STILL["patch"].format(row=row, column=column)


def moved_figures(data: PlayerData, index: int) -> list[tuple[str, str]]:
    """Bytes so far, the error at the end, and which step of the kernel this is."""
    walk, step = data.walk, data.walk.steps[index]
    tag = data.tags["bytes"]
    return [
        (STILL["what"], step.name),
        (STILL["read"], STILL["tagged"].format(value=in_words(step.bytes_read), tag=tag)),
        (STILL["written"], STILL["tagged"].format(value=in_words(step.bytes_written), tag=tag)),
        (STILL["error"], error_of(data, index == len(walk.steps) - 1)),
    ]


def error_of(data: PlayerData, at_end: bool) -> str:
    if not at_end:
        return STILL["error_at_end"]
    tag, right = data.tags["error"], f"{data.walk.largest_error:.1e}"
    if data.broken_walk is None:
        return STILL["error_value"].format(error=right, tag=tag)
    broken = f"{data.broken_walk.largest_error:.3g}"
    return STILL["error_broken"].format(error=broken, right=right, tag=tag)


def written(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}" if math.isfinite(value) else STILL["none"]
