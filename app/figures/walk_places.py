"""The pieces of a walk's picture: the plane, the patches and the row's map, each as a small Pillow image."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw

from app.components.tile_player.data import PlayerData
from app.theme import INK, PAPER
from kernels.trace import Walk
from vit.colours import probability_table
from vit.grid import PatchGrid

HOLLOW = (233, 234, 236)
VISITED = (164, 197, 207)
EDGE = (203, 205, 209)
QUERY, KEY = (11, 127, 171), (196, 85, 26)
QUERY_ON_PHOTO, KEY_ON_PHOTO = (99, 210, 255), (255, 176, 103)
COVER = 120
"""How opaque patches are covered, of 255."""
LINES_FROM = 8
"""Pixels a tile; finer lines would veil the plane."""
BOOST = 12.0
"""Weights are drawn as sqrt(12 weight), so that small ones are seen; the same in the player."""


# --- the plane --------------------------------------------------------------------------------------


def plane(walk: Walk, index: int, side: int, weights: Image.Image) -> Image.Image:
    """All queries against all keys: what is visited, the weights of this query tile, the tile of now.

    weights: from `band`, for the same side.
    """
    image = Image.new("RGB", (side, side), HOLLOW)
    pen = ImageDraw.Draw(image)
    scale = side / walk.tokens
    step = walk.steps[index]
    visited(pen, walk, index, scale, side)
    if walk.causal:
        hide_future(pen, walk, scale, side)
    top, tall = walk.query_start * scale, max(walk.rows * scale, 2)
    left, wide = step.key_start * scale, max(step.keys * scale, 2)
    first, end = seen(walk, index)
    first, end = round(first * scale), max(1, round(end * scale))
    image.paste(weights.crop((first, 0, end, weights.height)), (first, round(top)))
    lines(pen, walk, scale, side)
    outline(pen, (0, top, side - 1, top + tall), QUERY, 3)
    outline(pen, (left, 0, left + wide, side - 1), KEY, 3)
    outline(pen, (left - 3, top - 3, left + wide + 3, top + tall + 3), PAPER, 3)
    outline(pen, (left, top, left + wide, top + tall), INK, 4)
    return image


def seen(walk: Walk, index: int) -> tuple[int, int]:
    """The first key that this query tile has met up to a step, and the one behind the last; fa3 begins at the end."""
    met = [walk.steps[0], walk.steps[index]]
    return min(step.key_start for step in met), max(step.key_start + step.keys for step in met)


def visited(pen: ImageDraw.ImageDraw, walk: Walk, index: int, scale: float, side: int) -> None:
    """What the algorithm has passed before it came to this tile."""
    step = walk.steps[index]
    left, right = step.key_start * scale, (step.key_start + walk.block_k) * scale
    if walk.implementation == "fa1":
        pen.rectangle((0, 0, left, side), VISITED)
        pen.rectangle((left, 0, right, (walk.query_start + walk.rows) * scale), VISITED)
    elif step.phase in ("softmax", "sums"):
        pen.rectangle((0, 0, side, side), VISITED)  # the kernels before have filled all of it


def hide_future(pen: ImageDraw.ImageDraw, walk: Walk, scale: float, side: int) -> None:
    """Tiles that a causal mask hides from every query of their row."""
    for start in range(0, walk.tokens, walk.block_q):
        end = min(start + walk.block_q, walk.tokens)
        first = -(-end // walk.block_k) * walk.block_k * scale
        if first < side:
            pen.rectangle((first, start * scale, side, end * scale), PAPER)


def lines(pen: ImageDraw.ImageDraw, walk: Walk, scale: float, side: int) -> None:
    """The tiles' edges, where they are far enough apart."""
    if walk.block_k * scale >= LINES_FROM:
        for place in range(walk.block_k, walk.tokens, walk.block_k):
            pen.line((place * scale, 0, place * scale, side), EDGE)
    if walk.block_q * scale >= LINES_FROM:
        for place in range(walk.block_q, walk.tokens, walk.block_q):
            pen.line((0, place * scale, side, place * scale), EDGE)


def band(walk: Walk, side: int) -> Image.Image:
    """The final weights of this query tile at all keys, coloured, as wide as the plane."""
    weights = np.zeros((walk.rows, walk.tokens))
    final = walk.log_sum_exp.double().numpy()[:, None]
    with np.errstate(all="ignore"):
        for step in walk.steps:
            if step.phase in ("", "pairs"):
                scores = step.scores.double().numpy()
                weights[:, step.key_start : step.key_start + step.keys] = np.exp(scores - final)
    pixels = Image.fromarray(coloured(np.sqrt(BOOST * np.nan_to_num(weights))))
    tall = max(2, round(walk.rows * side / walk.tokens))
    return pixels.resize((side, tall), Image.Resampling.BOX)


# --- the picture ------------------------------------------------------------------------------------


def bare(data: PlayerData, size: tuple[int, int]) -> Image.Image:
    """The picture in the size that is drawn."""
    return Image.open(io.BytesIO(data.picture), formats=("JPEG",)).convert("RGB").resize(size)


def photo(data: PlayerData, index: int, picture: Image.Image) -> Image.Image:
    """The picture with this tile's queries and keys covered, and the followed row's patch framed."""
    picture, size = picture.copy(), picture.size
    walk, step = data.walk, data.walk.steps[index]
    cover = np.zeros((data.grid.patches, 4), np.uint8)
    for start, count, colour in (
        (step.key_start, step.keys, KEY_ON_PHOTO),
        (walk.query_start, walk.rows, QUERY_ON_PHOTO),
    ):
        first = max(start - len(data.prefix), 0)
        cover[first : max(start + count - len(data.prefix), 0)] = (*colour, COVER)
    box = placed(data.grid, data.size, size)
    small = Image.fromarray(cover.reshape(data.grid.rows, data.grid.columns, 4))
    layer = small.resize((box[2] - box[0], box[3] - box[1]), Image.Resampling.NEAREST)
    picture.paste(layer.convert("RGB"), box[:2], layer.getchannel("A"))
    patch = walk.query_start + data.followed_row - len(data.prefix)
    if patch >= 0:
        across, down = size[0] / data.size[0], size[1] / data.size[1]
        left, top, right, bottom = data.grid.box_of(*divmod(patch, data.grid.columns))
        place = (left * across, top * down, right * across, bottom * down)
        pen = ImageDraw.Draw(picture)
        outline(pen, grown(place, 4), INK, 3)
        outline(pen, grown(place, 1), PAPER, 3)
    return picture


def placed(
    grid: PatchGrid, full: tuple[int, int], size: tuple[int, int]
) -> tuple[int, int, int, int]:
    """The grid's box on a picture that is drawn in another size."""
    across, down = size[0] / full[0], size[1] / full[1]
    left, top, right, bottom = grid.box
    return round(left * across), round(top * down), round(right * across), round(bottom * down)


# --- the map ----------------------------------------------------------------------------------------


def row_map(
    weights: np.ndarray, most: float, prefix: int, grid: PatchGrid, size: tuple[int, int]
) -> Image.Image:
    """A row's weights as a map, one flat rectangle a patch; grey where no key was seen yet."""
    patches = weights[prefix:].reshape(grid.rows, grid.columns)
    pixels = coloured(patches / most if most > 0 else patches * 0)
    pixels[np.isnan(patches)] = HOLLOW
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)


def coloured(shares: np.ndarray) -> np.ndarray:
    """uint8 [..., 3] from shares of the scale, cut to 0 and 1; what is no number gets the first colour."""
    with np.errstate(all="ignore"):
        index = np.rint(255 * np.clip(np.nan_to_num(shares, posinf=1.0), 0, 1)).astype(np.uint8)
    return probability_table()[index]


def outline(
    pen: ImageDraw.ImageDraw,
    box: tuple[float, float, float, float],
    colour: tuple[int, int, int],
    wide: int,
) -> None:
    left, top, right, bottom = (round(place) for place in box)
    pen.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour, width=wide)


def grown(box: tuple[float, float, float, float], by: float) -> tuple[float, float, float, float]:
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by
