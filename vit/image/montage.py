"""All heads of a map side by side, as a PNG."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from vit.colours import probability_table

MAP_SIDE = 300  # about; a patch is a whole number of pixels
GAP = 8
COLUMNS = 6


def montage_png(maps: np.ndarray) -> bytes:
    """maps [heads, rows, columns] on one colour scale, from 0 to the largest value; at most 6 in a row."""
    heads, rows, columns = maps.shape
    zoom = max(1, MAP_SIDE // max(rows, columns))
    height, width = rows * zoom, columns * zoom
    across, down = min(heads, COLUMNS), -(-heads // COLUMNS)
    page = Image.new(
        "RGB", (across * (width + GAP) - GAP, down * (height + GAP) - GAP), (255, 255, 255)
    )
    top = float(maps.max()) or 1.0
    coloured = probability_table()[np.rint(255 * maps / top).astype(np.uint8)]
    for head, pixels in enumerate(coloured):
        place = (head % COLUMNS) * (width + GAP), (head // COLUMNS) * (height + GAP)
        tile = Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST)
        page.paste(tile, place)
    file = io.BytesIO()
    page.save(file, "PNG")
    return file.getvalue()
