"""What an address asks for, made possible on this machine; whatever had to give way is told."""

from __future__ import annotations

from dataclasses import replace

from app import compute, samples, session
from app.memory import SIDES
from app.state import State, fitted
from app.text import en
from app.trouble import Trouble
from vit.config import PRESETS
from vit.image import ImageError


def settled() -> State:
    """The state of this visitor with a picture, a size and patches that exist here."""
    asked = session.state()
    state = with_size(with_picture(asked))
    grid = compute.photo(state.picture, state.square).grid(state.side, PRESETS[state.model].patch)
    state, outside = fitted(state, grid)
    if asked.picture == state.picture:  # patches of a lost picture are no fault of the link
        for name in outside:
            session.tell(en.FRAME["outside_grid"].format(name=name))
    session.write(state)
    return state


def with_picture(state: State) -> State:
    """A sample in place of a picture that is not here or cannot be read."""
    try:
        compute.photo(state.picture, state.square)
    except (Trouble, ImageError) as fault:
        session.tell(str(fault))
        sample = State.picture if State.picture in samples.SAMPLES else next(iter(samples.SAMPLES))
        return replace(state, picture=sample, square=False, query=State.query, pin=None)
    return state


def with_size(state: State) -> State:
    """The largest size that fits, where the one asked for does not."""
    shown = compute.photo(state.picture, state.square)
    refusal = compute.size(shown, state.model, state.side).refusal
    if refusal is None:
        return state
    session.tell(refusal)
    smaller = [side for side in SIDES if side < state.side]
    fits = [side for side in smaller if compute.size(shown, state.model, side).refusal is None]
    return replace(state, side=max(fits, default=SIDES[0]), query=State.query, pin=None)
