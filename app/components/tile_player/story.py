"""The story of a kernel as the player shows it."""

from __future__ import annotations

from app.components.tile_player.data import StoryLines
from kernels.story import story
from kernels.trace import TITLES, Walk

BEFORE = {"fa2": ("Take a tile of queries",), "fa3": ("Take the last keys first",)}
AFTER = {
    "fa2": ("Divide once", "Save the log-sum-exp"),
    "fa3": ("Divide once",),
    "fa1": ("Finish at the last visit",),
}
"""Steps of the story that only the first or the last tile of a walk passes."""


def titles_of(walk: Walk) -> list[tuple[str, ...]]:
    """The headings of the story that each step of a walk passes, in their order."""
    name, last = walk.implementation, len(walk.steps) - 1
    return [
        (BEFORE.get(name, ()) if at == 0 else ())
        + TITLES[step.phase or name]
        + (AFTER.get(name, ()) if at == last else ())
        for at, step in enumerate(walk.steps)
    ]


def story_lines(implementation: str) -> tuple[StoryLines, ...]:
    """All steps of a kernel, forward and backward; "fa2-backward" is told in the story of "fa2"."""
    name = implementation.removesuffix("-backward")
    return tuple(
        StoryLines(
            title=step.title,
            text=" ".join(step.text.split()),
            file=f"kernels/{name}/{step.source}",
            first_line=step.line + 1,
            lines=tuple(step.code.splitlines()),
        )
        for step in story(name)
    )
