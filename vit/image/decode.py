"""From the bytes of a file to one upright RGB picture, or to one sentence that says why not.

Order matters: the file's size is checked before it is opened, the picture's size before it is
decoded. Nothing global in Pillow is changed, so any number of threads may decode at once.
"""

from __future__ import annotations

import re
from io import BytesIO

from PIL import ExifTags, Image, UnidentifiedImageError

from vit.image.colour import to_rgb
from vit.image.limits import MAX_PIXELS, ImageError, check_file, check_size

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")

DAMAGED = "This picture is damaged or cut off; save it again, or choose another one."
SAVE_AS = "save it as JPEG or PNG and try again."
# What can be said of files that do not open, from their first bytes; the first match counts.
UNOPENED = (
    (
        rb"^(\xff\xd8\xff|\x89PNG|GIF8|RIFF....WEBP|II\*\0|MM\0\*|....ftypavi)",
        f"This picture is damaged, cut off or of a rare kind; {SAVE_AS}",
    ),
    (
        rb"^....ftyp(hei|hev|mif|msf)",
        f"This is a HEIC picture, which cannot be read here; {SAVE_AS}",
    ),
    (rb"<html|<!doctype html", "This is a web page; save the picture itself and try again."),
    (rb"<svg", f"This is an SVG drawing, which cannot be read here; {SAVE_AS}"),
    (rb"^%PDF", f"This is a PDF document, which cannot be read here; {SAVE_AS}"),
    (rb"", f"This file is not a picture that can be read here; {SAVE_AS}"),
)

# How a picture is turned upright, by the value of its EXIF orientation tag (1 is upright).
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(data: bytes) -> tuple[Image.Image, tuple[str, ...]]:
    """The upright RGB picture in `data`, free of metadata, and plain sentences on what was done.

    Raises ImageError, whatever is wrong with the bytes.
    """
    check_file(len(data))
    try:
        with _open(data) as file:
            check_size(*file.size)
            file.load()
            picture, notes = to_rgb(file)
            method = UPRIGHT.get(_orientation(file))
            frames = _frames_note(file)  # last: looking for more frames forgets the first
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(
            "There is not enough memory to open this picture; make it smaller and try again."
        ) from error
    except Exception as error:  # hostile bytes make decoders raise nearly anything
        raise ImageError(DAMAGED) from error
    if method is not None:
        picture = picture.transpose(method)
    picture.info.clear()  # place, camera and comments must not travel on into downloads
    return picture, (*frames, *notes)


def _open(data: bytes) -> Image.Image:
    """Read the header; the content decides the format, never the file's name."""
    try:
        return Image.open(BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(
            f"This picture has far more than {MAX_PIXELS // 10**6} million pixels; make it smaller."
        ) from error
    except UnidentifiedImageError as error:
        head, flags = data[:1024], re.DOTALL | re.IGNORECASE
        sentence = next(text for pattern, text in UNOPENED if re.search(pattern, head, flags))
        raise ImageError(sentence) from error


def _orientation(file: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; a picture with unreadable EXIF is taken as upright.

    Asked for after decoding: PNG may keep EXIF behind its pixels, and Pillow turns TIFF itself.
    """
    try:
        return int(file.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # EXIF is a file format of its own, and as easily damaged
        return 1


def _frames_note(file: Image.Image) -> tuple[str, ...]:
    """Say so if the file holds more than the picture that is shown."""
    if not getattr(file, "is_animated", False):
        return ()
    if file.format == "TIFF":  # counting means reading every page
        return ("This is the first of several pages.",)
    kind = "pictures in the file" if file.format == "MPO" else "frames"
    return (f"This is the first of {file.n_frames} {kind}.",)  # type: ignore[attr-defined]
