"""What goes wrong when one step of the online softmax is left out: real variants of the real kernels."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.trace.steps import TraceError


@dataclass(frozen=True)
class Broken:
    """One mistake. Every text is one sentence."""

    name: str
    applies_to: tuple[str, ...]  # implementations that can make it
    wrong: str  # what is dropped
    why: str  # why it goes wrong
    exact_when: str  # where it makes no difference


FLASH = ("fa1", "fa2", "fa3")
ALL = ("naive", *FLASH)

BROKEN: dict[str, Broken] = {
    one.name: one
    for one in (
        Broken(
            "sum-not-rescaled",
            FLASH,
            "When a larger maximum appears, the sum collected so far is left as it is.",
            "The old part of the sum is still measured against the old maximum and so counts for too much: "
            "the output comes out too small.",
            "Exact while the first tile holds the row's maximum, so always with one tile.",
        ),
        Broken(
            "output-not-rescaled",
            FLASH,
            "When a larger maximum appears, the output collected so far is left as it is.",
            "The values of earlier tiles keep weights measured against the old maximum, so the weights no "
            "longer sum to 1 and early keys count for too much.",
            "Exact while the first tile holds the row's maximum, so always with one tile.",
        ),
        Broken(
            "divided-every-step",
            FLASH,
            "The output is divided by the sum after every tile, and the old division is never undone.",
            "What the first tiles gave is divided again at every tile that follows, until little is left of it.",
            "Exact with one tile.",
        ),
        Broken(
            "no-maximum",
            ALL,
            "No maximum is subtracted before the exponential.",
            "The exponential of a large score does not fit in a number, and those of very negative ones all "
            "become 0: the division is then infinity by infinity, or 0 by 0.",
            "Exact up to rounding while every score is small, between about -80 and 80 in float32; in float16 "
            "the weights themselves overflow above 11.",
        ),
        Broken(
            "log-base",
            ALL,
            "The scores go into a power of 2 without the factor log2(e).",
            "A power of 2 is none of e: 2^x is e^(0.69 x), so every difference between scores shrinks by a third "
            "and the row comes out too even.",
            "Exact only where all scores of the row are equal.",
        ),
        Broken(
            "tail-not-masked",
            ALL,
            "Keys that pad the last tile are not hidden.",
            "Padding is read as zeros, which gives a score of 0, and e^0 is not 0: keys that do not exist take "
            "a share of every row.",
            "Exact where the tokens fill their last tile, and under a causal mask, whose diagonal hides the "
            "padding too.",
        ),
        Broken(
            "alpha-upside-down",
            FLASH,
            "The rescale factor is turned over: exp(new maximum - old maximum).",
            "What should shrink when a larger maximum appears grows instead, by the square of the factor that "
            "was due.",
            "Exact while the first tile holds the row's maximum, so always with one tile.",
        ),
    )
}
"""name -> the mistake."""


def check_broken(broken: str | None, implementation: str) -> None:
    """Raise the sentence that stands against this mistake in this implementation."""
    if broken is None:
        return
    if broken not in BROKEN:
        raise TraceError(f"No mistake is called {broken!r}; choose {', '.join(BROKEN)}.")
    if implementation not in BROKEN[broken].applies_to:
        able = ", ".join(BROKEN[broken].applies_to)
        raise TraceError(f"{implementation} cannot make the mistake {broken!r}; choose {able}.")
