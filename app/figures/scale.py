"""Where a probability lies on the colour scale; the same three scales as on the canvas."""

from __future__ import annotations

import numpy as np

from app.components.patch_canvas.selection import Scale

LOG_RANGE = 1e-4
"""The logarithmic scale ends at this fraction of its top, as on the canvas."""


def tops(maps: np.ndarray, scale: Scale) -> np.ndarray:
    """The upper end of the scale for each head, [heads], of maps [heads, rows, columns]."""
    largest = maps.max(axis=(1, 2))
    return largest if scale == "each" else np.full_like(largest, largest.max())


def on_scale(values: np.ndarray, top: float, scale: Scale) -> np.ndarray:
    """Values as places on the scale, 0 to 1."""
    if top <= 0:
        return np.zeros_like(values)
    share = values / top
    if scale == "log":
        with np.errstate(divide="ignore"):
            share = 1 - np.log(share) / np.log(LOG_RANGE)
    return np.clip(share, 0, 1)


def ticks(top: float, scale: Scale) -> list[tuple[float, float]]:
    """Marks of the colour bar, (place, value), from its dark to its bright end."""
    places = (0, 0.25, 0.5, 0.75, 1)
    if scale == "log":
        return [(place, top * LOG_RANGE ** (1 - place)) for place in places]
    return [(place, top * place) for place in places]
