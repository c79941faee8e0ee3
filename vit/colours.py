"""The colour scale of probability: one table for the canvas, the figures and the downloads.

Made for this project in OKLab (Ottosson 2020): lightness rises evenly from 0.19 to 0.96 while the
hue turns from indigo through red to pale yellow, and the points lie at equal distances along that
path. Order survives every kind of colour blindness, because lightness alone carries it.
"""

from __future__ import annotations

import numpy as np

Rgb = tuple[int, int, int]

PROBABILITY: tuple[Rgb, ...] = (
    (18, 12, 49),
    (37, 17, 70),
    (59, 21, 88),
    (83, 23, 102),
    (109, 27, 110),
    (135, 30, 111),
    (161, 33, 107),
    (186, 41, 98),
    (206, 58, 87),
    (221, 80, 76),
    (233, 103, 67),
    (243, 127, 62),
    (249, 152, 67),
    (252, 177, 86),
    (254, 202, 116),
    (254, 225, 153),
    (255, 245, 195),
)
"""Evenly spaced control points, dark (none) to bright (most); straight lines in sRGB between them."""

SIGNED: tuple[Rgb, ...] = (
    (17, 76, 143),
    (75, 118, 171),
    (129, 159, 198),
    (185, 202, 224),
    (245, 245, 245),
    (220, 194, 180),
    (192, 145, 120),
    (161, 98, 61),
    (128, 50, 0),
)
"""For signed values: blue below zero, brown above, both darkening alike from near white (OKLab)."""


def probability_table(steps: int = 256) -> np.ndarray:
    """The scale as uint8 [steps, 3], first row darkest."""
    points = np.asarray(PROBABILITY, dtype=np.float64)
    places = np.linspace(0, len(points) - 1, steps)
    channels = [np.interp(places, np.arange(len(points)), points[:, c]) for c in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
