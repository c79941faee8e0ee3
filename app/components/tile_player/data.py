"""What the tile player is given, and what comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.trace import Walk
    from vit.grid import PatchGrid


@dataclass(frozen=True)
class StoryLines:
    """One step of a kernel's story with its code. `first_line` is the code's first line in `file`."""

    title: str
    text: str
    file: str
    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class OnChip:
    """What one program holds on chip, against what one multiprocessor of a GPU has.

    parts: what lies there -> bytes; they add up to `kernels.trace.sram_bytes`.
    limit_bytes: shared memory that one program may have on that GPU.
    l2_bytes: its L2 cache, or None where it is not known.
    """

    parts: Mapping[str, int]
    limit_bytes: int
    l2_bytes: int | None
    gpu: str

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class PlayerData:
    """One walk and all that is needed to show it. Nothing is fetched later.

    picture: JPEG bytes of the whole upright picture, in any resolution.
    size: (width, height) of the upright picture in pixels; `grid.box` is in these pixels.
    prefix: names of the tokens before the patches, as in `vit.image`.
    walk: the right walk; `broken_walk` the same with one step dropped, or None.
    story: the steps of the kernel, from `story_lines`.
    words: the PLAYER section of `app.text.tiles`.
    start_step, followed_row: where to open; both count from 0, the row within the query tile.
    broken_note: what is dropped and why that goes wrong, in plain sentences.
    tags: how figures were got: "bytes", "on_chip", "error" -> "counted", "formula", ...
    caption: whose walk this is, such as "layer 12, head 2".

    Raises:
        ValueError: the walk does not belong to the picture or the two walks differ in shape.
    """

    picture: bytes
    size: tuple[int, int]
    grid: PatchGrid
    prefix: tuple[str, ...]
    walk: Walk
    story: tuple[StoryLines, ...]
    on_chip: OnChip
    words: Mapping[str, object]
    broken_walk: Walk | None = None
    start_step: int = 0
    followed_row: int = 0
    broken_note: str = ""
    caption: str = ""
    tags: Mapping[str, str] = field(
        default_factory=lambda: {"bytes": "counted", "on_chip": "formula", "error": "measured"}
    )

    def __post_init__(self) -> None:
        tokens = len(self.prefix) + self.grid.patches
        if self.walk.tokens != tokens:
            raise ValueError(
                f"the walk has {self.walk.tokens} tokens, but the picture has {tokens}: "
                f"{len(self.prefix)} without a place and {self.grid.patches} patches"
            )
        if not self.walk.steps:
            raise ValueError("the walk has no steps, so there is nothing to play")
        broken = self.broken_walk
        if broken is not None and shape_of(broken) != shape_of(self.walk):
            raise ValueError("the broken walk and the right one have other tiles or other steps")

    def place(self, step: int, row: int) -> PlayerEvent:
        """A step and a row moved into this walk."""
        last_step, last_row = len(self.walk.steps) - 1, self.walk.rows - 1
        return PlayerEvent(min(max(step, 0), last_step), min(max(row, 0), last_row))


def shape_of(walk: Walk) -> tuple[object, ...]:
    """What two walks must share to be shown side by side."""
    places = tuple((step.phase, step.key_start) for step in walk.steps)
    return walk.implementation, walk.tokens, walk.query_start, walk.rows, walk.causal, places


@dataclass(frozen=True)
class PlayerEvent:
    """Where the visitor has stopped: the step and the followed row, both from 0."""

    step: int
    row: int
