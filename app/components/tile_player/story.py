"""The story of a kernel as the player shows it."""

from __future__ import annotations

from app.components.tile_player.data import StoryLines
from kernels.story import story


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
