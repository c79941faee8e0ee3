"""Everything the canvas shows, packed into one run of bytes.

    uint32 header length | header, JSON in UTF-8 | picture, JPEG | maps, float16 | pinned, float16

Little-endian. One run, because Streamlit hands raw bytes to the browser as they are, while bytes
inside a dict arrive as text. `blob.js` is the reader.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.components.patch_canvas.selection import Limits, Selection
from vit.colours import PROBABILITY

if TYPE_CHECKING:
    from vit.grid import PatchGrid
    from vit.maps.facts import Facts


@dataclass(frozen=True)
class CanvasData:
    """The maps of one query, for every layer and head, and what is needed to draw and explain them.

    picture: JPEG bytes of the whole upright picture, in any resolution.
    size: (width, height) of the upright picture in pixels; `grid.box` is in these pixels.
    maps: [layers, heads, tokens] for the selection's query and direction, prefix tokens first.
    pinned: the same for the selection's pin, or None.
    facts: of `maps`; each field starts with [layers, heads].
    words: the CANVAS section of `app.text`.

    Raises:
        ValueError: the shapes contradict each other; nothing is reshaped to fit.
    """

    picture: bytes
    size: tuple[int, int]
    grid: PatchGrid
    prefix: tuple[str, ...]
    maps: np.ndarray
    pinned: np.ndarray | None
    facts: Facts
    words: dict[str, str]

    def __post_init__(self) -> None:
        tokens = len(self.prefix) + self.grid.patches
        if self.maps.ndim != 3 or self.maps.shape[2] != tokens:
            raise ValueError(
                f"maps must be [layers, heads, {tokens}] for a grid of {self.grid.rows} x "
                f"{self.grid.columns} and {len(self.prefix)} prefix tokens, not {self.maps.shape}"
            )
        if self.pinned is not None and self.pinned.shape != self.maps.shape:
            raise ValueError(f"pinned is {self.pinned.shape}, but maps are {self.maps.shape}")

    @property
    def limits(self) -> Limits:
        layers, heads, _ = self.maps.shape
        return Limits(layers, heads, self.grid.rows, self.grid.columns, self.prefix)


def pack(data: CanvasData, selection: Selection, seq: int) -> bytes:
    """The bytes for the browser; `seq` says which of the browser's own changes they answer."""
    sections = [data.picture, _half(data.maps), b"" if data.pinned is None else _half(data.pinned)]
    header = {
        "seq": seq,
        "selection": selection.as_json(),
        "shape": list(data.maps.shape),
        "sections": [len(section) for section in sections],
        "picture": hashlib.sha256(data.picture).hexdigest(),
        "size": list(data.size),
        "grid": {"rows": data.grid.rows, "columns": data.grid.columns, "box": list(data.grid.box)},
        "prefix": list(data.prefix),
        "facts": _facts(data.facts),
        "colours": PROBABILITY,
        "words": data.words,
    }
    text = json.dumps(header, allow_nan=False).encode()
    return b"".join([struct.pack("<I", len(text)), text, *sections])


def _half(maps: np.ndarray) -> bytes:
    return np.ascontiguousarray(maps, dtype="<f2").tobytes()


def _facts(facts: Facts) -> dict[str, list]:
    return {
        "share": _numbers(facts.prefix_share),
        "entropy": _numbers(facts.entropy_bits),
        "distance": _numbers(facts.mean_distance),
        "strongest": np.asarray(facts.strongest).tolist(),
    }


def _numbers(values: object) -> list:
    """Nested lists with None where there is no finite number, since JSON has none."""
    array = np.asarray(values, dtype=np.float64)
    numbers = array.round(6).astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()
