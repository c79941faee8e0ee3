"""Downloads of a walk. A file is made when its button is pressed, not before."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import streamlit as st

from app.components.tile_player import PlayerData
from app.export_walk import as_html
from app.figures.walk_film import as_gif, as_webp, step_png
from app.origin import Origin
from app.state import State
from app.text import en
from app.text.export import SAVE
from kernels.bench.record import version


def save_walk_choice(data: PlayerData, origin: Origin) -> None:
    """Four buttons; PNG and HTML are of the step at which `data` opens."""
    walk, step = data.walk, data.start_step
    name = f"flashlens-{walk.implementation}-layer-{origin.layer}-head-{origin.head}"
    files: list[tuple[str, str, Callable[[], bytes], str]] = [
        ("html", f"{name}.html", lambda: as_html(data, origin), "text/html"),
        ("gif", f"{name}.gif", lambda: as_gif(data, origin), "image/gif"),
        ("webp", f"{name}.webp", lambda: as_webp(data, origin), "image/webp"),
        ("png", f"{name}-step-{step}.png", lambda: step_png(data, origin, step), "image/png"),
    ]
    with st.container(horizontal=True):
        for kind, file, make, mime in files:
            st.download_button(
                SAVE[kind],
                make,
                file,
                mime,
                key=f"save-walk-{kind}",
                help=SAVE[f"{kind}_help"],
                on_click="ignore",
            )


def origin_of(state: State) -> Origin:
    """Where the numbers of the walk on the screen come from."""
    title = f"title_{state.picture}"
    return Origin(
        picture=en.PICTURE.get(title, en.PICTURE["title_upload"]),
        model=en.MODEL.get(state.model, state.model),
        layer=state.layer,
        head=state.head,
        versions=versions(),
        when=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def versions() -> str:
    """What computed the walk."""
    triton = version("triton")
    return SAVE["versions" if triton else "no_triton"].format(torch=version("torch"), triton=triton)
