"""The view as one picture to keep: the query, all heads of a layer, the colour bar."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from app.components.patch_canvas.selection import Scale
from app.figures.scale import on_scale, ticks, tops
from app.theme import INK, MARK, PAPER, QUIET
from vit.colours import probability_table
from vit.grid import PatchGrid
from vit.trace import Query

MARGIN = 28
PICTURE_SIDE = 560
MAP_SIDE = 250
GAP = 14
LINE = 26
BAR_HEIGHT = 16
COLUMNS = 3


@dataclass(frozen=True)
class Sheet:
    """What is drawn. `size` (width, height) of the upright picture whose pixels `grid.box` counts;
    `picture` may be smaller. `maps` [heads, rows, columns]. The words come from `app.text`."""

    picture: Image.Image
    size: tuple[int, int]
    grid: PatchGrid
    query: Query
    maps: np.ndarray
    head: int
    scale: Scale
    title: str
    caption: str
    head_names: tuple[str, ...]
    bar_label: str


def draw(sheet: Sheet) -> Image.Image:
    """Draw a sheet; places are those of `layout`."""
    page, picture_box, map_boxes = layout(sheet)
    canvas = Image.new("RGB", page, PAPER)
    pen = ImageDraw.Draw(canvas)
    pen.text((MARGIN, MARGIN - 8), sheet.title, INK, font(22))
    draw_picture(canvas, pen, sheet, picture_box)
    scale_tops = tops(sheet.maps, sheet.scale)
    for head, box in enumerate(map_boxes):
        draw_map(canvas, sheet.maps[head], float(scale_tops[head]), sheet.scale, box)
        pen.text((box[0], box[1] - 23), sheet.head_names[head], INK, font(15))
        if head == sheet.head:
            pen.rectangle((box[0] - 3, box[1] - 3, box[2] + 2, box[3] + 2), outline=INK, width=2)
    bottom = max(picture_box[3], *(box[3] for box in map_boxes)) + GAP
    draw_bar(canvas, pen, sheet, (map_boxes[0][0], bottom, page[0] - MARGIN, bottom + BAR_HEIGHT))
    pen.text((MARGIN, page[1] - MARGIN - 16), sheet.caption, QUIET, font(15))
    return canvas


Place = tuple[int, int, int, int]  # left, top, right, bottom on the page


def layout(sheet: Sheet) -> tuple[tuple[int, int], Place, list[Place]]:
    """The page's (width, height), the picture's place and each map's."""
    width, height = fitted(sheet.size, PICTURE_SIDE)
    top = MARGIN + 2 * LINE
    picture_box = (MARGIN, top, MARGIN + width, top + height)
    map_width, map_height = fitted(
        (sheet.grid.box[2] - sheet.grid.box[0], sheet.grid.box[3] - sheet.grid.box[1]), MAP_SIDE
    )
    boxes = []
    for head in range(len(sheet.maps)):
        left = picture_box[2] + 2 * GAP + (head % COLUMNS) * (map_width + GAP)
        upper = top + (head // COLUMNS) * (map_height + LINE + GAP)
        boxes.append((left, upper, left + map_width, upper + map_height))
    right = max(box[2] for box in boxes)
    lower = max(picture_box[3], boxes[-1][3])
    return (right + MARGIN, lower + GAP + BAR_HEIGHT + 3 * LINE + MARGIN), picture_box, boxes


def fitted(size: tuple[float, float], side: int) -> tuple[int, int]:
    """(width, height) with the longer one equal to `side`, shape kept."""
    factor = side / max(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def draw_picture(canvas: Image.Image, pen: ImageDraw.ImageDraw, sheet: Sheet, place: Place) -> None:
    """The picture, a crop's box if there is one, and the query's patch."""
    left, top, right, bottom = place
    canvas.paste(sheet.picture.resize((right - left, bottom - top)), (left, top))
    across, down = (right - left) / sheet.size[0], (bottom - top) / sheet.size[1]

    def outline(box: tuple[float, float, float, float], colour: tuple[int, int, int]) -> None:
        corners = (
            round(left + box[0] * across),
            round(top + box[1] * down),
            round(left + box[2] * across) - 1,
            round(top + box[3] * down) - 1,
        )
        pen.rectangle(corners, outline=colour, width=2)

    if sheet.grid.box != (0, 0, *sheet.size):
        outline(sheet.grid.box, PAPER)
    if not isinstance(sheet.query, str):
        outline(sheet.grid.box_of(*sheet.query), MARK)


def draw_map(
    canvas: Image.Image, values: np.ndarray, top: float, scale: Scale, place: Place
) -> None:
    """One map, one flat rectangle a patch, never smoothed."""
    index = np.rint(255 * on_scale(values, top, scale)).astype(np.uint8)
    small = Image.fromarray(probability_table()[index])
    size = place[2] - place[0], place[3] - place[1]
    canvas.paste(small.resize(size, Image.Resampling.NEAREST), place[:2])


def draw_bar(canvas: Image.Image, pen: ImageDraw.ImageDraw, sheet: Sheet, place: Place) -> None:
    """The colour bar with its values; with a scale per map there is no common value to write."""
    left, upper, right, lower = place
    ramp = np.tile(np.linspace(0, 255, right - left).round().astype(np.uint8), (lower - upper, 1))
    canvas.paste(Image.fromarray(probability_table()[ramp]), (left, upper))
    if sheet.scale != "each":
        for where, value in ticks(float(sheet.maps.max()), sheet.scale):
            anchor = "la" if where == 0 else "ra" if where == 1 else "ma"
            x = left + where * (right - left)
            pen.text((x, lower + 4), f"{value:.2g}", INK, font(14), anchor=anchor)
    pen.text((left, lower + LINE), sheet.bar_label, QUIET, font(15))


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def png(image: Image.Image) -> bytes:
    """The picture as a PNG file without metadata."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
