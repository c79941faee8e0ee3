"""The choice of size, with what each one needs, and of the model."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from app import compute, session
from app.guard import guarded_callback
from app.memory import SIDES, in_words
from app.state import State, moved
from app.text import en
from vit.config import PRESETS
from vit.image import Photo

SIZE, MODEL, SQUARE = "size", "model", "square"


def size_choice(state: State, shown: Photo) -> None:
    """All sizes in one list; those that do not fit here say so and are refused when chosen."""
    sizes = {side: compute.size(shown, state.model, side) for side in SIDES}
    config = PRESETS[state.model]
    st.session_state[SIZE] = state.side
    st.selectbox(
        en.SIZE["label"],
        SIDES,
        format_func=lambda side: option(sizes[side]),
        key=SIZE,
        on_change=change_size,
        help=en.SIZE["help"].format(layers=config.layers, heads=config.heads),
        width=395,
    )


def option(size: compute.Size) -> str:
    need = size.forecast
    text = en.SIZE["option"] if size.refusal is None else en.SIZE["too_large"]
    text = text.format(
        side=size.side,
        tokens=need.tokens,
        ours=in_words(need.ours),
        all=in_words(need.storing_all),
    )
    if size.seconds is None:
        return text
    return en.SIZE["seconds"].format(option=text, seconds=f"{size.seconds:.1f}")


def model_choice(state: State) -> None:
    st.session_state[MODEL] = state.model
    st.selectbox(
        en.MODEL["label"],
        list(PRESETS),
        format_func=lambda name: en.MODEL.get(str(name), str(name)),
        key=MODEL,
        on_change=change_model,
        width=165,
    )


def square_choice(state: State) -> None:
    st.session_state[SQUARE] = state.square
    st.toggle(
        en.PICTURE["square"], key=SQUARE, on_change=change_square, help=en.PICTURE["square_help"]
    )


@guarded_callback
def change_size() -> None:
    state = session.state()
    side = st.session_state[SIZE]
    refusal = compute.size(compute.photo(state.picture, state.square), state.model, side).refusal
    if refusal is not None:
        session.tell(refusal)
        return
    change(replace(state, side=side))


@guarded_callback
def change_square() -> None:
    change(replace(session.state(), square=st.session_state[SQUARE]))


@guarded_callback
def change_model() -> None:
    session.write(replace(session.state(), model=st.session_state[MODEL]))


def change(new: State) -> None:
    """Change to another grid; the patches stay where they were on the picture."""
    old = session.state()
    patch = PRESETS[new.model].patch
    before = compute.photo(old.picture, old.square).grid(old.side, patch)
    after = compute.photo(new.picture, new.square).grid(new.side, patch)
    session.write(moved(new, before, after))
