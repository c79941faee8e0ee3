"""Every choice of the visitor in one place, and its form in the address of the page.

Pure: no Streamlit here. Whatever an address says is checked; a value that makes no sense gives way
to its default and is named, so that the page can say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from app.components.patch_canvas.selection import Direction, Scale, Selection
from app.memory import SIDES
from kernels.registry import IMPLEMENTATIONS
from vit.config import PRESETS
from vit.grid import PatchGrid
from vit.trace import Query

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Choices = TypeVar("Choices", bound="DataclassInstance")

PICTURE = re.compile(r"[a-z]{1,32}|u-[A-Za-z0-9_-]{16,64}")
PATCH = re.compile(r"([0-9]{1,4}),([0-9]{1,4})")
WHOLE = re.compile(r"[0-9]{1,5}")
FRACTION = re.compile(r"0(\.[0-9]{1,2})?|1(\.0{1,2})?")


@dataclass(frozen=True)
class State:
    """What is on the screen. Layers, heads, rows and columns count from 0."""

    picture: str = "cat"  # a sample's name, or the random name of an upload
    side: int = 518  # pixels of the longer side, one of SIDES
    square: bool = False  # cut to the central square
    model: str = "dinov2-small"  # one of PRESETS
    layer: int = 11
    head: int = 2
    query: Query = "class"
    direction: Direction = "looks"
    pin: Query | None = None
    scale: Scale = "shared"
    opacity: float = 0.7  # two decimals
    compare: tuple[str, ...] | None = None  # implementations, two or more; None: by machine


NAMES = frozenset(field.name for field in fields(State))


def from_url(params: Mapping[str, str]) -> tuple[State, tuple[str, ...]]:
    """The state that an address asks for, and the names of the values that had to be dropped.

    Names that are not ours are left alone.
    """
    return read_into(State(), params, readers(params.get("model", State.model)))


def read_into(
    default: Choices,
    params: Mapping[str, str],
    readers: Mapping[str, Callable[[str], Any]],
    in_address: Mapping[str, str] | None = None,
) -> tuple[Choices, tuple[str, ...]]:
    """`default` with every field that an address sets, and the names of the values that make no sense.

    A reader gives None for what makes no sense. `in_address` is each field's name there, where it is another.
    """
    chosen, dropped = default, []
    for field, read in readers.items():
        name = in_address[field] if in_address else field
        if name not in params:
            continue
        value = read(params[name])
        if value is None:
            dropped.append(name)
        else:
            chosen = replace(chosen, **{field: value})
    return chosen, tuple(dropped)


def to_url(state: State) -> dict[str, str]:
    """The address's parameters; a choice that is None is left out."""
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {name: in_url(value) for name, value in values.items() if value is not None}


def in_url(value: Any) -> str:
    """One value as an address writes it: 1 or 0, "12,20", "register-1", "0.7", or as it is."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value).replace(" ", "-")


def readers(model: str) -> dict[str, Callable[[str], Any]]:
    """For each name how its text is read; a reader gives None for what makes no sense."""
    config = PRESETS.get(model, PRESETS[State.model])
    return {
        "picture": lambda text: text if PICTURE.fullmatch(text) else None,
        "side": lambda text: one_of(text, {str(side): side for side in SIDES}),
        "square": lambda text: one_of(text, {"0": False, "1": True}),
        "model": lambda text: one_of(text, {name: name for name in PRESETS}),
        "layer": lambda text: below(text, config.layers),
        "head": lambda text: below(text, config.heads),
        "query": lambda text: read_query(text, config.prefix),
        "direction": lambda text: one_of(text, {name: name for name in get_args(Direction)}),
        "pin": lambda text: read_query(text, config.prefix),
        "scale": lambda text: one_of(text, {name: name for name in get_args(Scale)}),
        "opacity": lambda text: float(text) if FRACTION.fullmatch(text) else None,
        "compare": read_names,
    }


def one_of(text: str, choices: Mapping[str, Any]) -> Any:
    return choices.get(text)


def below(text: str, count: int) -> int | None:
    """A whole number from 0 to count - 1."""
    return int(text) if WHOLE.fullmatch(text) and int(text) < count else None


def read_query(text: str, prefix: tuple[str, ...]) -> Query | None:
    """A patch, written 12,20, or a token, written class or register-1; `fitted` checks the grid."""
    if match := PATCH.fullmatch(text):
        return int(match[1]), int(match[2])
    return text.replace("-", " ") if text in {name.replace(" ", "-") for name in prefix} else None


def read_names(text: str) -> tuple[str, ...] | None:
    """Two or more implementations, each once, written naive,fa2."""
    names = tuple(text.split(","))
    known = len(names) >= 2 and len(set(names)) == len(names) and set(names) <= {*IMPLEMENTATIONS}
    return names if known else None


def fitted(state: State, grid: PatchGrid) -> tuple[State, tuple[str, ...]]:
    """The state without patches that this grid does not have, and the names of those dropped."""
    outside = tuple(name for name in ("query", "pin") if not on_grid(getattr(state, name), grid))
    return replace(state, **{name: getattr(State(), name) for name in outside}), outside


def on_grid(query: Query | None, grid: PatchGrid) -> bool:
    if query is None or isinstance(query, str):
        return True
    return query[0] < grid.rows and query[1] < grid.columns


def moved(state: State, old: PatchGrid, new: PatchGrid) -> State:
    """The state with its patches where they were on the picture, after the grid has changed."""

    def follow(query: Query | None) -> Query | None:
        if query is None or isinstance(query, str):
            return query
        left, top, right, bottom = old.box_of(*query)
        return new.patch_at((left + right) / 2, (top + bottom) / 2)

    return replace(state, query=follow(state.query) or State.query, pin=follow(state.pin))


def selection(state: State) -> Selection:
    """The part of the state that the canvas changes."""
    return Selection(
        layer=state.layer,
        head=state.head,
        query=state.query,
        direction=state.direction,
        pin=state.pin,
        scale=state.scale,
        opacity=state.opacity,
    )


def with_selection(state: State, chosen: Selection) -> State:
    """The state after something was chosen on the canvas."""
    return replace(
        state,
        layer=chosen.layer,
        head=chosen.head,
        query=chosen.query,
        direction=chosen.direction,
        pin=chosen.pin,
        scale=chosen.scale,
        opacity=round(chosen.opacity, 2),
    )
