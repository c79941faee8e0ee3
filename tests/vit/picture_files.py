"""Picture files made for the tests, byte by byte where no library would write them."""

from __future__ import annotations

import re
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from vit.image import ImageError, load_image


def noise(height: int = 40, width: int = 60, seed: int = 0) -> np.ndarray:
    """Random RGB pixels, uint8 [height, width, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encode(picture: Image.Image | np.ndarray, kind: str = "PNG", **options) -> bytes:
    """A file's bytes."""
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture)
    buffer = BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def png(width: int, height: int, bits: int, colour: int, rows: list[bytes], *extra: bytes) -> bytes:
    """A PNG from its raw rows; `extra` are chunks that stand before the pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    squeeze = zlib.compressobj(9)
    pixels = b"".join(squeeze.compress(b"\0" + row) for row in rows) + squeeze.flush()
    body = b"".join(extra) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + body


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def tiff(values: np.ndarray, bits: int, photometric: int = 1) -> bytes:
    """A little-endian grey TIFF from whole numbers [height, width] of 12 or 16 bits."""
    height, width = values.shape
    if bits == 12:  # two values in three bytes, the first one's high bits first
        pairs = values.reshape(height, -1, 2).astype(np.uint16)
        first, second = pairs[..., 0], pairs[..., 1]
        packed = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
        data = np.stack(packed, axis=-1).astype(np.uint8).tobytes()
    else:
        data = values.astype("<u2").tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric}
    tags |= {273: 8, 277: 1, 278: height, 279: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory


def ink_profile() -> bytes:
    """A valid ICC profile for CMYK (ICC.1:2001-04, lut8Type) with an easily recognised error in it.

    Its table has the 2x2x2x2 corners only: no cyan is white (L 100), full cyan is black (L 0), and
    the other three inks leave no trace.
    """
    identity = np.eye(3).astype(">i4") * 65536
    ramp = bytes(range(256))
    corners = b"".join(
        bytes([0 if cyan else 255, 128, 128]) for cyan in (0, 1) for _ in range(8)
    )  # Lab, cyan changing slowest
    table = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + identity.tobytes()
    table += ramp * 4 + corners + ramp * 3
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    words = b"desc" + bytes(4) + struct.pack(">I", 5) + b"inks\0" + bytes(78)
    rights = b"text" + bytes(4) + b"none\0\0\0\0"
    parts = {b"desc": words, b"cprt": rights, b"wtpt": white, b"A2B0": table}
    index, body, start = b"", b"", 128 + 4 + 12 * len(parts)
    for name, part in parts.items():
        index += name + struct.pack(">II", start + len(body), len(part))
        body += part + bytes(-len(part) % 4)
    size = start + len(body)
    header = struct.pack(">I4sI4s4s4s", size, b"test", 0x02400000, b"prtr", b"CMYK", b"Lab ")
    header += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28)
    header += struct.pack(">3i", 63190, 65536, 54061) + bytes(48)
    assert len(header) == 128
    return header + struct.pack(">I", len(parts)) + index + body


def blank(width: int, height: int) -> bytes:
    """A valid 1-bit PNG; a zero row compresses to nearly nothing."""
    return png(width, height, 1, 0, [bytes(width // 8 + 1)] * height)


def array(source) -> np.ndarray:
    """The upright picture's pixels, [height, width, 3]."""
    return np.asarray(load_image(source).picture)


def refusal(source, **options) -> str:
    """The sentence with which a source is refused: one line, one sentence, starting large."""
    with pytest.raises(ImageError) as caught:
        load_image(source, **options)
    sentence = str(caught.value)
    assert re.fullmatch(r"['A-Z][^\n]*\.", sentence), sentence
    assert ". " not in sentence
    return sentence
