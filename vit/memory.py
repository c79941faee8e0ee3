"""Giving memory back to the system between two layers."""

from __future__ import annotations

import ctypes
from functools import cache


def give_back_freed() -> None:
    """Return freed pages to the system, where the C library can.

    glibc keeps what was freed between two pieces that stay, for later. A run that keeps three tensors a
    layer among many that come and go would hold a tenth more memory than it uses.
    """
    trim = malloc_trim()
    if trim is not None:
        trim(0)


@cache
def malloc_trim():
    """glibc's own function, or None on a system with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
