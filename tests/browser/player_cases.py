"""Walks, pictures and grids for the tile player's playground and its tests."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from app.components.tile_player import OnChip, PlayerData, story_lines
from app.text.player import PLAYER
from kernels.trace import Walk
from tests.browser.canvas_cases import REGISTERS, picture
from tests.browser.played_walk import Head, head, played_walk
from vit.grid import PatchGrid


@dataclass(frozen=True)
class Case:
    """One walk to try. The picture's grid has `rows` x `columns` patches after the prefix tokens."""

    rows: int
    columns: int
    query_tile: int = 1
    block: int = 64
    prefix: tuple[str, ...] = ("class",)
    causal: bool = False
    broken: str | None = None
    implementation: str = "fa2"

    @property
    def tokens(self) -> int:
        return len(self.prefix) + self.rows * self.columns


CASES = {
    "fa2": Case(37, 37, 5),
    "fa1": Case(37, 37, 5, implementation="fa1"),
    "small": Case(10, 15, 1, block=32),
    "first": Case(10, 15, 0, block=32, prefix=REGISTERS),
    "causal": Case(37, 37, 8, causal=True),
    "broken": Case(37, 37, 5, broken="output-not-rescaled"),
    "large": Case(74, 74, 40),
}


@functools.cache
def played_head(tokens: int) -> Head:
    return head(tokens)


@functools.cache
def walks(case: Case) -> tuple[Walk, Walk | None]:
    """The right walk and the broken one, where the case has one."""
    arguments = (played_head(case.tokens), case.query_tile, case.block, case.causal)
    right = played_walk(*arguments, implementation=case.implementation)
    if case.broken is None:
        return right, None
    return right, played_walk(*arguments, broken=case.broken, implementation=case.implementation)


def player_data(case: Case, step: int = 0, row: int = 0) -> PlayerData:
    right, broken = walks(case)
    size = (37 * case.columns, 37 * case.rows)
    return PlayerData(
        picture=picture(size),
        size=size,
        grid=PatchGrid(case.rows, case.columns, 14, (0.0, 0.0, float(size[0]), float(size[1]))),
        prefix=case.prefix,
        walk=right,
        broken_walk=broken,
        story=story_lines(case.implementation),
        on_chip=OnChip(
            {"Q": 16_384, "K": 16_384, "V": 16_384, "S": 16_384}, 232_448, 60 << 20, "an H200"
        ),
        words=PLAYER,
        start_step=step,
        followed_row=row,
        broken_note="The output collected so far is left as it is." if broken else "",
        caption="layer 12, head 2",
    )
