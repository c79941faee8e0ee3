"""Pictures, grids and one-hot maps whose answer is known, for the canvas playground and its tests.

For the query patch k, head h lights patch k + h when asked where it looks, and patch k - h when asked
who looks at it (counted along the rows, around the end). Prefix tokens get 0.05 each.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

REGISTERS = ("class", "register 1", "register 2", "register 3", "register 4")


@dataclass(frozen=True)
class Case:
    """One picture and model to try."""

    rows: int
    columns: int
    size: tuple[int, int]
    prefix: tuple[str, ...] = ("class",)
    box: tuple[float, float, float, float] | None = None
    layers: int = 3
    heads: int = 6
    broken: bool = False
    flat: bool = False


CASES = {
    "square": Case(16, 16, (448, 448)),
    "wide": Case(10, 30, (900, 300)),
    "wider": Case(20, 30, (900, 600)),
    "tall": Case(30, 10, (200, 600)),
    "registers": Case(20, 30, (900, 600), REGISTERS),
    "crop": Case(10, 10, (600, 400), REGISTERS, box=(180.0, 60.0, 480.0, 360.0)),
    "broken": Case(10, 30, (900, 300), broken=True),
    "flat": Case(10, 30, (900, 300), flat=True),
    "big": Case(16, 16, (448, 448), layers=24, heads=16),
}


@dataclass(frozen=True)
class StubFacts:
    """The fields of `vit.maps.facts.Facts`, as arrays."""

    prefix_share: np.ndarray
    entropy_bits: np.ndarray
    mean_distance: np.ndarray
    strongest: np.ndarray


def lit_patch(case: Case, query: tuple[int, int] | str, head: int, direction: str) -> int:
    patch = 0 if isinstance(query, str) else query[0] * case.columns + query[1]
    step = head if direction == "looks" else -head
    return (patch + step) % (case.rows * case.columns)


def stub_maps(case: Case, query: tuple[int, int] | str, direction: str) -> np.ndarray:
    """float16 [layers, heads, tokens]"""
    prefix = len(case.prefix)
    maps = np.zeros((case.layers, case.heads, prefix + case.rows * case.columns), np.float16)
    maps[..., :prefix] = 0.05
    for head in range(case.heads):
        maps[:, head, prefix + lit_patch(case, query, head, direction)] = 1 - 0.05 * prefix
    if case.flat:
        maps[..., prefix:] = 0
    if case.broken:
        maps[0, 1, -1] = np.nan
        maps[0, 2, prefix] = np.inf
    return maps


def stub_facts(case: Case, maps: np.ndarray) -> StubFacts:
    prefix = len(case.prefix)
    strongest = np.argsort(-maps[..., prefix:], axis=-1, kind="stable")[..., :10] + prefix
    shape = maps.shape[:2]
    return StubFacts(
        prefix_share=maps[..., :prefix].astype(np.float64),
        entropy_bits=np.full(shape, 1.25),
        mean_distance=np.full(shape, np.nan),
        strongest=strongest,
    )


def picture(size: tuple[int, int]) -> bytes:
    """A smooth picture, JPEG."""
    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([255 * x / width, 255 * y / height, np.full_like(x, 90)], axis=-1)
    file = io.BytesIO()
    Image.fromarray(rgb.astype(np.uint8)).save(file, "JPEG")
    return file.getvalue()
