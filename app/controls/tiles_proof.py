"""The proof under the player: the same output as a real kernel's, and the bytes that the loops predict."""

from __future__ import annotations

import streamlit as st

from app.figures.units import three_digits
from app.memory import in_words
from app.state_tiles import count_of
from app.text.tiles import PROOF
from app.walks import Walked
from kernels.trace import Walk


def proof(right: Walked, broken: Walked | None) -> None:
    """Measured: the differences. Counted, or by formula: the bytes."""
    sentences = [errors(right.walk, None if broken is None else broken.walk)]
    if right.real is not None:
        real = PROOF["real"].format(
            name=right.real.implementation,
            dtype=right.real.dtype,
            difference=scientific(right.real.largest_difference),
            rows=right.walk.rows,
        )
        sentences.insert(0, real)
    st.markdown("  \n".join(sentences))
    st.markdown("  \n".join([bytes_of_walk(right.walk), bytes_of_head(right.walk)]))


def errors(right: Walk, broken: Walk | None) -> str:
    error = scientific(right.largest_error)
    if broken is None:
        return PROOF["error"].format(error=error)
    return PROOF["broken"].format(broken=scientific(broken.largest_error), error=error)


def bytes_of_walk(walk: Walk) -> str:
    """Both figures, and whether they are the same."""
    last = walk.steps[-1]
    read, written = f"{last.bytes_read:,}", f"{last.bytes_written:,}"
    if walk.bytes_source != "counted":  # a compiled kernel has no counter
        return PROOF["bytes_formula"].format(read=read, written=written)
    apart = abs(last.bytes_read - walk.formula_read) + abs(
        last.bytes_written - walk.formula_written
    )
    return PROOF["bytes"].format(
        read=read,
        written=written,
        whose=PROOF["twins" if walk.note else "kernels"],
        formula_read=f"{walk.formula_read:,}",
        formula_written=f"{walk.formula_written:,}",
        verdict=PROOF["differs" if apart else "same"].format(bytes=f"{apart:,}"),
    )


def bytes_of_head(walk: Walk) -> str:
    return PROOF["head"].format(
        count=count_of(walk.tokens, walk.block_q),
        read=in_words(walk.head_read),
        written=in_words(walk.head_written),
        stored=in_words(walk.tokens**2 * 4),
    )


def scientific(value: float) -> str:
    """1.2e-07 where it is small, else three digits that count."""
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else three_digits(value)
