"""The drawing of two groups of warps that take turns, with its words."""

from __future__ import annotations

from app.figures.turns import Block, Kind, Lane, Scene, turns
from app.text.turns import TURNS


def taking_turns() -> str:
    """The same work twice: both groups at once, and in turns."""
    return turns([together(), in_turns()], TURNS["caption"])


def block(kind: Kind, word: str, slots: int = 1) -> Block:
    return Block(kind, TURNS[word], slots)


def together() -> Scene:
    """Two tiles each, all units shared: eight slots."""
    group = [block("multiply", "multiply", 2), block("softmax", "softmax", 2)] * 2
    units = [block("multiply", "of_both", 2), block("idle", "idle", 2)] * 2
    return Scene(
        TURNS["together"],
        [
            Lane(TURNS["first"], group),
            Lane(TURNS["second"], group),
            Lane(TURNS["units"], units),
        ],
    )


def in_turns() -> Scene:
    """In eight slots four tiles for the first group, and for the second all but the last softmax."""
    pair = [block("multiply", "multiply"), block("softmax", "softmax")]
    later = [block("idle", "waits"), *(4 * pair)[:-1]]
    units = [block("multiply", "of_first"), block("multiply", "of_second")] * 4
    return Scene(
        TURNS["in_turns"],
        [
            Lane(TURNS["first"], 4 * pair),
            Lane(TURNS["second"], later),
            Lane(TURNS["units"], units),
        ],
    )
