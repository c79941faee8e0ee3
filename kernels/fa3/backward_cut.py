"""Where the last wave of the backward pass is cut into shorter walks. Plain numbers, without Triton."""

from __future__ import annotations

MOST_PARTS, FEWEST_VISITS = 8, 16
"""A walk is cut into at most so many parts, each of at least so many tiles of queries."""

EXTRA_VISITS = 4
"""How many visits of tiles of queries the beginning and the end of a program take about. An estimate."""


def ceil_div(total: int, size: int) -> int:
    """How many pieces of `size` cover `total`."""
    return -(-total // size)


def cut_of(tiles: int, visits: int, slots: int) -> tuple[int, int]:
    """-> how many tiles of keys are walked whole, and into how many parts the walk of each other is cut.

    `tiles` of all heads, each of which visits so many tiles of queries; `slots` programs run at once. Only the
    last wave is cut, and only where that leaves fewer of the slots idle.
    """
    whole = tiles // slots * slots
    most = max(1, min(MOST_PARTS, visits // FEWEST_VISITS))
    time = {
        parts: ceil_div((tiles - whole) * parts, slots) * (visits / parts + EXTRA_VISITS)
        for parts in range(1, most + 1)
    }
    parts = min(time, key=time.__getitem__)
    return (tiles, 1) if parts == 1 else (whole, parts)
