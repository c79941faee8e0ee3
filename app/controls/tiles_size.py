"""The choice of a tile's size: a grid of buttons, those that do not fit on the chip greyed out."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import chip, compute
from app.memory import in_words
from app.state_tiles import SIDES, Tiles
from app.text.tiles import CHOICE


def tile_choice(tiles: Tiles, head_dim: int, take: Callable[[tuple[int, int]], None]) -> None:
    """Queries down, keys across; each with the bytes that it needs."""
    limit = chip.limit_of(compute.device())
    need = chip.needs(tiles.algorithm, head_dim)
    label = CHOICE["tile"].format(queries=tiles.block_q, keys=tiles.block_k)
    with st.popover(label, help=CHOICE["tile_help"], key="tiles-size"):
        gpu = CHOICE["this_gpu" if limit.here else "recorded_gpu"]
        st.caption(CHOICE["tile_title"].format(gpu=gpu, limit=in_words(limit.bytes)))
        with st.grid(len(SIDES), min_column_width=72, wrap=False, gap="xxsmall", width=400):
            for tile in need:
                st.button(
                    CHOICE["tile_one"].format(
                        queries=tile[0], keys=tile[1], need=in_words(need[tile])
                    ),
                    key=f"tiles-size-{tile[0]}-{tile[1]}",
                    type="primary" if tile == tiles.tile else "secondary",
                    disabled=need[tile] > limit.bytes,
                    on_click=take,
                    args=(tile,),
                    width="stretch",
                )
