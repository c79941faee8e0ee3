"""From whatever numbers a picture file holds to plain 8-bit RGB, with a note where it shows.

Pillow's own `convert("RGB")` clips 16-bit grey to white, shows the hidden colour of transparent
pixels and ignores the profile of printing inks; those three are done here. RGB values are taken as
they stand, whatever their profile, because that is how the models were trained.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image, ImageCms, TiffImagePlugin

from vit.image.limits import ImageError


def to_rgb(picture: Image.Image) -> tuple[Image.Image, list[str]]:
    """A decoded picture of any mode as RGB, and plain sentences on what was done to it."""
    notes: list[str] = []
    if picture.mode.startswith("I;16"):
        picture = _from_16_bit(picture)
    elif picture.mode in ("I", "F"):
        picture, note = _from_open_range(picture)
        notes.append(note)
    elif picture.mode == "CMYK":
        picture, note = _from_inks(picture)
        notes.append(note)
    elif picture.mode == "LAB":
        raise ImageError("This picture is in Lab colours; save it as JPEG or PNG and try again.")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        if picture.getchannel("A").getextrema() != (255, 255):
            notes.append("Transparent parts are shown on white.")
            white = Image.new("RGB", picture.size, "white")
            white.paste(picture, mask=picture)
            picture = white
    return picture.convert("RGB"), notes


def _from_16_bit(picture: Image.Image) -> Image.Image:
    """Grey of up to 16 bits: keep each value's highest 8 bits, as Pillow does for 16-bit colour."""
    values = np.asarray(picture)
    grey = (values >> (_bits(picture) - 8)).astype(np.uint8)
    if _white_is_zero(picture):
        grey = 255 - grey
    clear = picture.info.get("transparency")  # the one grey value that PNG declares transparent
    if clear is None:
        return Image.fromarray(grey)
    alpha = np.where(values == clear, 0, 255).astype(np.uint8)
    return Image.fromarray(np.stack([grey, alpha], axis=-1))  # [height, width, 2]: mode LA


def _from_open_range(picture: Image.Image) -> tuple[Image.Image, str]:
    """32-bit whole or floating numbers, whose file does not say what is black and what is white.

    Up to 1 and up to 255 are the usual white points; anything else is stretched from the least to
    the greatest value. Infinite values become the end that they point to, NaN becomes black.
    """
    values = np.asarray(picture)
    finite = np.isfinite(values)
    if not finite.any():
        raise ImageError("This picture holds no finite numbers; choose another one.")
    first = values.flat[finite.argmax()]
    low, high = (float(end(values, where=finite, initial=first)) for end in (np.min, np.max))
    black, white = low, high if high > low else low + 1
    if low >= 0 and high <= 255:
        black, white = 0.0, 1.0 if high <= 1 else 255.0
    grey = np.empty(values.shape, np.uint8)
    for shown, line in zip(grey, values, strict=True):  # a large picture in float64 is 320 MB
        numbers = np.nan_to_num(line.astype(np.float64), nan=black, posinf=white, neginf=black)
        shown[:] = np.rint((numbers - black) / (white - black) * 255)
    if _white_is_zero(picture):
        grey = 255 - grey
        black, white = white, black
    note = f"The file holds numbers: {black:g} is shown as black, {white:g} as white."
    return Image.fromarray(grey), note


def _from_inks(picture: Image.Image) -> tuple[Image.Image, str]:
    """CMYK through the file's own colour profile; without one that works, by plain arithmetic."""
    profile = picture.info.get("icc_profile")
    if profile:
        try:
            inks = ImageCms.ImageCmsProfile(BytesIO(profile))
            screen = ImageCms.createProfile("sRGB")
            converted = ImageCms.profileToProfile(picture, inks, screen, outputMode="RGB")
        except (ImageCms.PyCMSError, OSError, TypeError, ValueError):
            converted = None
        if converted is not None:
            return converted, "Printing inks (CMYK) were turned into screen colours by its profile."
    return picture.convert("RGB"), "Printing inks (CMYK) were turned into screen colours, roughly."


def _bits(picture: Image.Image) -> int:
    """Bits per value: 16, or 12 in some TIFFs, which Pillow unpacks without scaling them."""
    return getattr(picture, "tag_v2", {}).get(TiffImagePlugin.BITSPERSAMPLE, (16,))[0]


def _white_is_zero(picture: Image.Image) -> bool:
    """True for TIFFs that count from white to black; Pillow turns only those of 8 bits or fewer."""
    return getattr(picture, "tag_v2", {}).get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0
