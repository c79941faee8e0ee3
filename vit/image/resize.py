"""Bicubic resize with antialiasing: columns first, then rows, each rounded to a byte.

On a CPU Pillow does it. On a GPU, where the model takes a millisecond and Pillow would take ten, the same sums
of whole numbers are done there: Pillow's weights have 22 binary places, and whole numbers have no order of
addition, so the bytes are the same. Pillow is called once for each direction, because which it takes first
when left to itself depends on its version.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit.grid import Box

MOST_READ, MOST_MADE = 2**22, 2**24
"""Pixels read and made on a GPU. A larger picture takes longer to get there than Pillow takes to resize it, and a
larger result more of a GPU's memory than it is worth; both go through Pillow."""

REACH = 2.0
"""Bicubic looks this far to each side, in pixels of the coarser of the two pictures."""

PLACES = 22
"""Binary places of a weight."""


def resized(
    picture: Image.Image, height: int, width: int, box: Box, device: torch.device | str
) -> Tensor:
    """The box of an RGB picture as uint8 [height, width, 3]; on the device where it was resized there."""
    left, top, right, bottom = box
    # Rows that the second step will look at, with one to spare.
    margin = REACH * max(1.0, (bottom - top) / height) + 1
    start = max(0, math.floor(top - margin))
    end = min(picture.height, math.ceil(bottom + margin))
    top, bottom = top - start, bottom - start
    read = (end - start) * picture.width <= MOST_READ
    made = max(end - start, height) * width <= MOST_MADE
    if torch.device(device).type == "cuda" and read and made:
        rows = np.array(picture.crop((0, start, picture.width, end)))
        across = along(torch.from_numpy(rows).to(device), 1, width, left, right)
        return along(across, 0, height, top, bottom)
    bicubic = Image.Resampling.BICUBIC
    across = picture.resize((width, end - start), bicubic, box=(left, start, right, end))
    down = across.resize((width, height), bicubic, box=(0, top, width, bottom))
    return torch.from_numpy(np.array(down))


def along(picture: Tensor, axis: int, places: int, low: float, high: float) -> Tensor:
    """uint8 [rows, columns, channels], resized along one axis, where `places` lie evenly over low ... high."""
    shape = [1, 1, 1]
    shape[axis] = places
    total = 1 << (PLACES - 1)  # a half, to round
    device = torch.device(picture.device)
    for pixel, weight in zip(*taps(picture.shape[axis], places, low, high, device), strict=True):
        total = total + picture.index_select(axis, pixel) * weight.view(shape)
    assert isinstance(total, Tensor)
    return total.bitwise_right_shift_(PLACES).clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=16)
def taps(
    size: int, places: int, low: float, high: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Which pixels, of `size`, each place looks at, and their weights in 2^-22, int32, both [taps, places].

    Beyond the edge of the picture there is nothing to look at; what is there weighs the more.
    """
    start = np.float32(low)  # as Pillow keeps a box
    step = float(np.float32(high) - start) / places
    coarser = max(1.0, step)
    centre = float(start) + (np.arange(places) + 0.5) * step
    first = np.maximum((centre - REACH * coarser + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + REACH * coarser + 0.5).astype(np.int64), size)
    pixel = first + np.arange((last - first).max())[:, None]
    weights = np.where(pixel < last, cubic((pixel - centre + 0.5) / coarser), 0.0)
    weights /= weights.sum(axis=0)
    whole = np.trunc(weights * (1 << PLACES) + np.copysign(0.5, weights)).astype(np.int32)
    seen = np.minimum(pixel, size - 1).astype(np.int32)
    return torch.from_numpy(seen).to(device), torch.from_numpy(whole).to(device)


def cubic(x: np.ndarray) -> np.ndarray:
    """Keys 1981, equation 4, with a = -1/2."""
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < REACH, far, 0.0))
