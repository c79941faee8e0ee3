"""The whole walk, packed into one run of bytes.

    uint32 header length | header, JSON in UTF-8 | sections, each at a multiple of 4 bytes

Little-endian, offsets counted from the end of the header, which is padded with spaces to a multiple
of 4. `header.sections[i]` is {kind: "bytes" | "float16" | "float32", shape, start, bytes}; everything
else in the header names its arrays by their place in that list. Arrays that are alike to the byte are
sent once. One run, because Streamlit hands raw bytes to the browser as they are, while bytes inside a
dict arrive as text. `blob.js` is the reader.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from app.components.tile_player.data import PlayerData
from app.components.tile_player.story import titles_of
from vit.colours import PROBABILITY, SIGNED

if TYPE_CHECKING:
    from kernels.trace import Step, Walk

HALF_ERROR = 1e-3
"""Relative. float16 is sent only where every value of an array survives it this well."""
EXACT = ("scores", "running_max", "running_sum", "rescale", "log_sum_exp")
"""Always float32: the browser takes exponentials and products of these, which would multiply the error."""
WHOLE_ROWS = {"scores": "pairs", "weights": "sums"}
"""Arrays of naive's softmax that another phase sends tile by tile, and which one; the browser joins them."""
ALIGNMENT = 4


class Sections:
    """The arrays of a blob, each content once."""

    def __init__(self) -> None:
        self.entries: list[dict[str, object]] = []
        self.chunks: list[bytes] = []
        self._places: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._end = 0

    def add(self, kind: str, shape: tuple[int, ...], content: bytes) -> int:
        """The place of this content in the list of sections."""
        known = (kind, shape, hashlib.sha256(content).digest())
        if known in self._places:
            return self._places[known]
        entry = {"kind": kind, "shape": list(shape), "start": self._end, "bytes": len(content)}
        self.entries.append(entry)
        padded = content + bytes(-len(content) % ALIGNMENT)
        self.chunks.append(padded)
        self._end += len(padded)
        self._places[known] = len(self.entries) - 1
        return self._places[known]

    def add_array(self, values: object, exact: bool) -> int:
        array = np.ascontiguousarray(as_numpy(values), dtype="<f4")
        if not exact and half_will_do(array):
            return self.add("float16", array.shape, array.astype("<f2").tobytes())
        return self.add("float32", array.shape, array.tobytes())


class Packed:
    """A walk with all its arrays packed; `walk_id` differs if anything that is shown differs."""

    def __init__(self, data: PlayerData) -> None:
        self.sections = Sections()
        self.header: dict[str, object] = {
            "picture": self.sections.add("bytes", (len(data.picture),), data.picture),
            "walk": pack_walk(data.walk, self.sections),
            "broken": None
            if data.broken_walk is None
            else pack_walk(data.broken_walk, self.sections),
            "size": list(data.size),
            "grid": {
                "rows": data.grid.rows,
                "columns": data.grid.columns,
                "box": list(data.grid.box),
            },
            "prefix": list(data.prefix),
            "broken_note": data.broken_note,
            "caption": data.caption,
            "story": [asdict(step) for step in data.story],
            "on_chip": {**asdict(data.on_chip), "parts": dict(data.on_chip.parts)},
            "tags": dict(data.tags),
            "colours": {"probability": PROBABILITY, "signed": SIGNED},
            "words": data.words,
            "sections": self.sections.entries,
        }
        digest = hashlib.sha256(json.dumps(self.header, allow_nan=False).encode())
        for chunk in self.sections.chunks:
            digest.update(chunk)
        self.walk_id = digest.hexdigest()[:16]

    def blob(self, step: int, row: int, seq: int) -> bytes:
        """The bytes for the browser, opening at a step and row."""
        header = {"walk_id": self.walk_id, "step": step, "row": row, "seq": seq, **self.header}
        text = json.dumps(header, allow_nan=False).encode()
        text += b" " * (-(4 + len(text)) % ALIGNMENT)
        return b"".join([struct.pack("<I", len(text)), text, *self.sections.chunks])


def pack(data: PlayerData, seq: int = 0) -> bytes:
    """The bytes for the browser; `seq` says which of the visitor's own changes they answer."""
    place = data.place(data.start_step, data.followed_row)
    return Packed(data).blob(place.step, place.row, seq)


def pack_walk(walk: Walk, sections: Sections) -> dict[str, object]:
    names = ("implementation", "broken", "causal", "scale", "block_q", "block_k", "query_start")
    names += ("rows", "tokens", "head_dim", "dtype", "most_rise")
    names += ("formula_read", "formula_written", "head_read", "head_written", "bytes_source")
    packed: dict[str, object] = {name: getattr(walk, name) for name in names}
    packed["largest_error"] = number(walk.largest_error)
    packed["output"] = sections.add_array(walk.output, exact=False)
    packed["log_sum_exp"] = sections.add_array(walk.log_sum_exp, exact=True)
    packed["steps"] = [
        {**pack_step(step, walk, sections), "titles": titles}
        for step, titles in zip(walk.steps, titles_of(walk), strict=True)
    ]
    return packed


def pack_step(step: Step, walk: Walk, sections: Sections) -> dict[str, object]:
    arrays = {name: getattr(step, name) for name in (*EXACT[:-1], "output")} | step.extra
    joined = {
        name: phase for name, phase in WHOLE_ROWS.items() if is_joined(step, walk, name, phase)
    }
    return {
        "name": step.name,
        "phase": step.phase,
        "key_start": step.key_start,
        "keys": step.keys,
        "bytes_read": step.bytes_read,
        "bytes_written": step.bytes_written,
        "arrays": {
            name: sections.add_array(values, exact=name in EXACT)
            for name, values in arrays.items()
            if name not in joined
        },
        "joined": joined,
    }


def is_joined(step: Step, walk: Walk, name: str, phase: str) -> bool:
    """Whether the whole rows of naive's second kernel are the tiles of another phase side by side."""
    if step.phase != "softmax":
        return False
    tiles = [array_of(other, name) for other in walk.steps if other.phase == phase]
    whole = array_of(step, name)
    if whole is None or not tiles or any(tile is None for tile in tiles):
        return False
    return np.array_equal(np.concatenate(tiles, axis=1), whole, equal_nan=True)  # pyright: ignore


def array_of(step: Step, name: str) -> np.ndarray | None:
    values = step.scores if name == "scores" else step.extra.get(name)
    return None if values is None else as_numpy(values)


def as_numpy(values: object) -> np.ndarray:
    """A tensor on any device, or an array, as an array."""
    tensor = getattr(values, "detach", None)
    return np.asarray(values if tensor is None else tensor().float().cpu())


def half_will_do(array: np.ndarray) -> bool:
    """Whether float16 keeps every value to HALF_ERROR of itself; -inf and NaN keep themselves."""
    finite = array[np.isfinite(array)]
    with np.errstate(over="ignore"):
        half = finite.astype(np.float16).astype(np.float32)
    return bool((np.abs(half - finite) <= HALF_ERROR * np.abs(finite)).all())


def number(value: float) -> float | str:
    """A number for JSON, which has no infinity: those travel as text."""
    return float(value) if math.isfinite(value) else str(float(value))
