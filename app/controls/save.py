"""Downloads of the view. A file is made when its button is pressed, not before."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import streamlit as st
from PIL import Image

from app.components.patch_canvas import Selection
from app.figures import sheet
from app.state import State, in_url, to_url
from app.text import en
from vit.files import npz
from vit.grid import PatchGrid
from vit.trace import Query


@dataclass(frozen=True)
class Saved:
    """What the two files are made from; small, so that keeping it keeps no trace alive."""

    state: State
    selection: Selection
    jpeg: bytes
    size: tuple[int, int]  # width and height of the upright picture
    grid: PatchGrid
    maps: np.ndarray  # [heads, rows, columns] of the chosen layer
    log_sum_exp: np.ndarray  # [heads, tokens]
    implementation: str


def save_choice(saved: Saved) -> None:
    """Two buttons."""
    chosen = saved.selection
    name = f"flashlens-layer-{chosen.layer}-{in_url(chosen.query).replace(',', '-')}"
    files: list[tuple[str, Callable[[], bytes], str]] = [
        ("png", lambda: as_png(saved), "image/png"),
        ("npz", lambda: as_npz(saved), "application/octet-stream"),
    ]
    with st.container(horizontal=True):
        for kind, make, mime in files:
            st.download_button(
                en.SAVE[kind],
                make,
                f"{name}.{kind}",
                mime,
                key=f"save-{kind}",
                help=en.SAVE[f"{kind}_help"],
                on_click="ignore",
            )


def as_png(saved: Saved) -> bytes:
    state, chosen, grid = saved.state, saved.selection, saved.grid
    picture = Image.open(io.BytesIO(saved.jpeg), formats=("JPEG",))
    caption = en.SAVE["caption"].format(
        layer=chosen.layer,
        side=state.side,
        rows=grid.rows,
        columns=grid.columns,
        model=en.MODEL.get(state.model, state.model),
        implementation=saved.implementation,
    )
    drawn = sheet.Sheet(
        picture=picture,
        size=saved.size,
        grid=grid,
        query=chosen.query,
        maps=saved.maps,
        head=chosen.head,
        scale=chosen.scale,
        title=en.SAVE[chosen.direction].format(query=in_words(chosen.query)),
        caption=caption,
        head_names=tuple(
            en.SAVE["head"].format(head=head, top=f"{values.max():.2g}")
            for head, values in enumerate(saved.maps)
        ),
        bar_label=en.SAVE[chosen.scale],
    )
    return sheet.png(sheet.draw(drawn))


def as_npz(saved: Saved) -> bytes:
    settings = to_url(saved.state) | {
        "query": in_url(saved.selection.query),
        "rows": saved.grid.rows,
        "columns": saved.grid.columns,
        "implementation": saved.implementation,
    }
    return npz(saved.maps, saved.log_sum_exp, settings)


def in_words(query: Query) -> str:
    if isinstance(query, str):
        return en.SAVE["token"].format(name=query)
    return en.SAVE["patch"].format(row=query[0], column=query[1])
