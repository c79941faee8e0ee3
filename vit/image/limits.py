"""What a picture may measure, and the sentence that is raised beyond it."""

from __future__ import annotations

MAX_FILE_BYTES = 20 * 1024 * 1024  # the same number as the server's upload limit
MAX_PIXELS = 40_000_000
MAX_SIDE = 12_000
MIN_SIDE = 14  # one patch
MAX_ASPECT = 20  # longer side : shorter side


class ImageError(ValueError):
    """A picture that cannot be used; the message is one sentence that says what to do."""


def check_file(size_bytes: int) -> None:
    """Refuse an empty or an oversized file."""
    if size_bytes == 0:
        raise ImageError("This file is empty; choose a picture.")
    if size_bytes > MAX_FILE_BYTES:
        raise ImageError(
            f"This file is larger than {MAX_FILE_BYTES // 2**20} MB; "
            "save a smaller copy and try again."
        )


def check_size(width: float, height: float, what: str = "This picture") -> None:
    """Refuse a picture, or a crop of one, that is too large, too small or too narrow.

    `width` and `height` are in pixels; the header's numbers are enough, nothing need be decoded.
    """
    size = f"{what} is {height:.10g} pixels high and {width:.10g} wide"
    shorter, longer = sorted((width, height))
    if longer > MAX_SIDE:
        raise ImageError(
            f"{size}, but a side may have at most {MAX_SIDE:,} pixels; make it smaller."
        )
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{size}, more than {MAX_PIXELS // 10**6} million pixels in all; make it smaller."
        )
    if shorter < MIN_SIDE:
        raise ImageError(
            f"{size}, but a side needs at least {MIN_SIDE} pixels; choose a larger one."
        )
    if longer > MAX_ASPECT * shorter:
        raise ImageError(f"{size}, too narrow: at most {MAX_ASPECT} to 1; choose a squarer one.")
