"""A large picture to look at, made of small ones: from afar a scene, from near the sample pictures.

Whole numbers only, a strip at a time: the same bits on every machine, and no more memory than the picture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit.image.photo import Photo

CELLS = 98
"""Small pictures along a side: at 14,014 px each is 143 px wide."""
FEWEST_PIXELS = 14


def mosaic(side: int, photos: Sequence[Photo], device: torch.device | str = "cpu") -> Tensor:
    """uint8 [side, side, 3] in the computer's memory, worked out on the device.

    The first photo is the scene; its colours shift those of the small ones, which keep half their contrast.
    """
    cell = max(FEWEST_PIXELS, side // CELLS)
    cells = -(-side // cell)
    scene = square(photos[0], cells).to(device)
    small = torch.stack([square(photo, cell) for photo in photos]).to(device)
    small = torch.cat([small, small.flip(2)])  # and their mirror images
    detail = (small - small.sum((1, 2), keepdim=True) // cell**2) // 2
    picture = torch.empty(side, side, 3, dtype=torch.uint8)
    column = torch.arange(cells, device=device)
    for row in range(cells):
        chosen = detail[(5 * row + 3 * column + row * column) % len(detail)]  # [cells, y, x, 3]
        strip = (chosen + scene[row][:, None, None]).clamp_(0, 255).byte()
        strip = strip.transpose(0, 1).reshape(cell, cells * cell, 3)
        target = picture[row * cell : (row + 1) * cell]
        target.copy_(strip[: len(target), :side])
    return picture


def square(photo: Photo, side: int) -> Tensor:
    """The photo's middle, `side` pixels wide and high, int32 [side, side, 3]."""
    seen = photo.cropped("square")
    resized = seen.picture.resize((side, side), Image.Resampling.BICUBIC, box=seen.crop)
    return torch.from_numpy(np.array(resized)).int()
