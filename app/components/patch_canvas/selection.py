"""What the visitor has chosen on the canvas; whatever a browser sends is checked here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeGuard, TypeVar, get_args

if TYPE_CHECKING:
    from vit.trace import Query

Direction = Literal["looks", "looked_at"]
Scale = Literal["shared", "each", "log"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
SCALES: tuple[Scale, ...] = get_args(Scale)

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True)
class Limits:
    """What can be chosen: sizes of the model and of the patch grid, and the prefix tokens' names."""

    layers: int
    heads: int
    rows: int
    columns: int
    prefix: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """One view of the maps. Layers, heads, rows and columns count from 0; opacity is 0 to 1.

    `direction` "looks" is the query's row of the attention matrix, "looked_at" its column.
    `scale` "shared" has one colour scale for all heads of a layer, "each" one a map, "log" is
    shared and logarithmic.
    """

    layer: int
    head: int
    query: Query
    direction: Direction = "looks"
    pin: Query | None = None
    scale: Scale = "shared"
    opacity: float = 0.7

    def as_json(self) -> dict[str, object]:
        """For the browser: a patch becomes a list of two numbers, a token stays a name."""
        return {
            "layer": self.layer,
            "head": self.head,
            "query": _query_as_json(self.query),
            "direction": self.direction,
            "pin": None if self.pin is None else _query_as_json(self.pin),
            "scale": self.scale,
            "opacity": self.opacity,
        }

    @classmethod
    def from_browser(cls, value: object, present: Selection, limits: Limits) -> Selection:
        """The browser's choice made safe: numbers are clamped, anything else odd is left as at present."""
        if not isinstance(value, Mapping):
            return present
        pin = value.get("pin", present.pin)
        query = _query(value.get("query"), limits)
        return cls(
            layer=_whole(value.get("layer"), limits.layers, present.layer),
            head=_whole(value.get("head"), limits.heads, present.head),
            query=present.query if query is None else query,
            direction=_one_of(value.get("direction"), DIRECTIONS, present.direction),
            pin=None if pin is None else _query(pin, limits) or present.pin,
            scale=_one_of(value.get("scale"), SCALES, present.scale),
            opacity=_fraction(value.get("opacity"), present.opacity),
        )


def _query_as_json(query: Query) -> list[int] | str:
    return query if isinstance(query, str) else list(query)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: object, count: int, present: int) -> int:
    """A number from 0 to count - 1."""
    return min(max(value if _is_whole(value) else present, 0), count - 1)


def _query(value: object, limits: Limits) -> Query | None:
    """A patch moved into the grid, or the name of a token that this model has; None if neither."""
    if isinstance(value, str):
        return value if value in limits.prefix else None
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    row, column = value
    if not (_is_whole(row) and _is_whole(column)):
        return None
    return _whole(row, limits.rows, 0), _whole(column, limits.columns, 0)


def _one_of(value: object, choices: tuple[Choice, ...], present: Choice) -> Choice:
    return next((choice for choice in choices if choice == value), present)


def _fraction(value: object, present: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return present
    return min(max(float(value), 0.0), 1.0)
