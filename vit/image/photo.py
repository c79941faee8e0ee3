"""Photo: the picture, the part of it that the model sees, and how to get one from a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

import torch
from PIL import Image
from torch import Tensor

from vit.grid import Box, PatchGrid
from vit.image.decode import decode
from vit.image.limits import MAX_FILE_BYTES, ImageError, check_file, check_size
from vit.image.resize import resized

Crop = Box | Literal["square"] | None


@dataclass(frozen=True)
class Photo:
    """An upright picture, the part of it that the model sees, and what was done to it on the way.

    `picture` is whole, RGB, and free of metadata. `crop` is a box in its pixels. `digest` is the
    SHA-256 of the file's bytes, a safe key for caches. `notes` are plain sentences for the reader.
    """

    picture: Image.Image = field(repr=False, compare=False)
    crop: Box
    digest: str
    notes: tuple[str, ...] = ()

    def cropped(self, crop: Crop) -> Photo:
        """The same photo seen through a box, the largest centred square, or (None) whole."""
        width, height = self.picture.size
        if crop is None:
            return replace(self, crop=(0.0, 0.0, float(width), float(height)))
        if crop == "square":
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            return replace(self, crop=(left, top, left + side, top + side))
        return replace(self, crop=_checked_box(crop, width, height))

    def grid(self, side: int, patch: int = 14) -> PatchGrid:
        """The patch grid over the crop, when its longer side is resized to about `side` pixels.

        The longer side gets the whole number of patches nearest to `side / patch`, the shorter one
        the number that keeps the picture's proportions best, and each at least one. Rounding
        stretches the shorter side by at most half a patch, unless "at least one" decides.
        """
        if side < 1 or patch < 1:
            raise ImageError("The size must be a positive number of pixels; choose a larger one.")
        left, top, right, bottom = self.crop
        height, width = bottom - top, right - left
        longest = max(1, _nearest(side / patch))
        rows = max(1, _nearest(longest * min(1.0, height / width)))
        columns = max(1, _nearest(longest * min(1.0, width / height)))
        return PatchGrid(rows, columns, patch, self.crop)

    def pixels(
        self,
        grid: PatchGrid,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
        rows: range | None = None,
    ) -> Tensor:
        """The grid's box as the model's input, float32 [1, 3, rows * patch, columns * patch].

        Bicubic with antialiasing, straight from the full picture (`vit.image.resize`); then, on the device,
        0..255 becomes 0..1, minus `mean`, divided by `std`, each per colour channel. With `rows` only
        those rows of patches, cut from the same resized picture.
        """
        height, width = grid.input_size
        rows = range(grid.rows) if rows is None else rows
        part = slice(rows.start * grid.patch, rows.stop * grid.patch)
        # Bytes travel to the device, a quarter of what the floats would be.
        pixels = resized(self.picture, height, width, grid.box, device)[part].to(device)
        pixels = pixels.permute(2, 0, 1)[None].float()
        shift, spread = channels(tuple(mean), device), channels(tuple(std), device)
        return pixels.div_(255).sub_(shift).div_(spread).contiguous()

    def jpeg(self, longest: int = 1036, quality: int = 88) -> bytes:
        """The whole picture for the screen, its longer side at most `longest` pixels."""
        shrink = min(1.0, longest / max(self.picture.size))
        width, height = (max(1, _nearest(side * shrink)) for side in self.picture.size)
        shown = self.picture.resize((width, height), Image.Resampling.BICUBIC)
        buffer = BytesIO()
        shown.save(buffer, "JPEG", quality=quality)
        return buffer.getvalue()


@lru_cache(maxsize=8)
def channels(values: tuple[float, ...], device: torch.device | str) -> Tensor:
    """One number a colour channel, for broadcasting; kept, since each trip to a GPU makes Python wait."""
    return torch.tensor(values, dtype=torch.float32, device=device).view(1, 3, 1, 1)


def load_image(source: str | Path | bytes | BinaryIO, crop: Crop = None) -> Photo:
    """A photo from a path, from a file's bytes, or from a binary stream, read from its start.

    `crop` is a box (left, top, right, bottom) in pixels of the upright picture, or "square" for the
    largest centred square. Nothing is cropped without it. Raises ImageError with one sentence.
    """
    data = _read(source)
    picture, notes = decode(data)
    whole = (0.0, 0.0, float(picture.width), float(picture.height))
    photo = Photo(picture, whole, hashlib.sha256(data).hexdigest(), notes)
    return photo.cropped(crop)


def _read(source: str | Path | bytes | BinaryIO) -> bytes:
    """At most one byte more than a file may have, so that a huge one is never read whole."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | Path):
        return _read_path(Path(source))
    if source.seekable():
        source.seek(0)  # an upload that was read before would otherwise seem empty
    return source.read(MAX_FILE_BYTES + 1)


def _read_path(path: Path) -> bytes:
    name = repr(str(path))  # quoted, so that no name can break the sentence or its line
    try:
        if path.is_dir():
            raise ImageError(f"{name} is a folder; name a picture file in it.")
        if not path.exists():
            raise ImageError(f"There is no file {name}; check its name and folder.")
        if not path.is_file():
            raise ImageError(f"{name} is not an ordinary file; name a picture file.")
        check_file(path.stat().st_size)
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise ImageError(f"{name} cannot be read ({reason}); choose another file.") from error


def _checked_box(crop: Sequence[float], width: int, height: int) -> Box:
    """The crop as four floats, if it is a box inside the picture that is large enough to see."""
    try:
        left, top, right, bottom = (float(edge) for edge in crop)
    except (TypeError, ValueError) as error:
        raise ImageError(
            'A crop is four numbers, left, top, right and bottom, or the word "square".'
        ) from error
    inside = 0 <= left < right <= width and 0 <= top < bottom <= height
    if not (inside and all(map(math.isfinite, (left, top, right, bottom)))):
        raise ImageError(
            f"The crop must lie inside the picture, which is {width} wide and {height} high; "
            "give left, top, right and bottom in its pixels."
        )
    check_size(right - left, bottom - top, "The crop")
    return left, top, right, bottom


def _nearest(number: float) -> int:
    """The nearest whole number, halves upwards (Python's round would take them to the even one)."""
    return math.floor(number + 0.5)
