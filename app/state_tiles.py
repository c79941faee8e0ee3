"""The choices of the page Tiles, and their form in the address. Pure: no Streamlit here.

Layer, head and query are the whole app's (`app.state`); a query tile that was not chosen by hand is the one
that holds the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from app.state import in_url, read_into
from kernels.trace import BROKEN

PATH = "tiles"
"""The page's place in the address."""

ALGORITHMS = ("naive", "fa1", "fa2", "fa3", "fa2-backward")
SIDES = (16, 32, 64, 128)
"""Of a tile, in queries or keys."""

WHOLE = re.compile(r"[0-9]{1,7}")
TILE = re.compile(r"([0-9]{2,3})x([0-9]{2,3})")


@dataclass(frozen=True)
class Tiles:
    """Which walk is shown, and where in it. Tiles, rows and steps count from 0."""

    algorithm: str = "fa2"  # one of ALGORITHMS
    tile: tuple[int, int] = (64, 64)  # queries, keys; each one of SIDES
    causal: bool = False
    query_tile: int | None = None  # None: the one that holds the query
    broken: str | None = None  # one of BROKEN
    row: int | None = None  # the followed token; None: the query, or the first of the tile
    step: int = 0

    @property
    def block_q(self) -> int:
        return self.tile[0]

    @property
    def block_k(self) -> int:
        return self.tile[1]


IN_ADDRESS = {
    "algorithm": "walk",
    "tile": "tile",
    "causal": "mask",
    "query_tile": "queries",
    "broken": "break",
    "row": "row",
    "step": "step",
}
"""Each field's name in an address, none of them one of `State`'s or `Sweep`'s."""


def from_url(params: Mapping[str, str]) -> tuple[Tiles, tuple[str, ...]]:
    """The choices that an address asks for, and the names of the values that had to be dropped."""
    tiles, dropped = read_into(Tiles(), params, READERS, IN_ADDRESS)
    if tiles.broken is not None and not applies(tiles.broken, tiles.algorithm):
        tiles = replace(tiles, broken=None)
        dropped = (*dropped, IN_ADDRESS["broken"])
    return tiles, dropped


def to_url(tiles: Tiles) -> dict[str, str]:
    """The address's parameters; a choice that is None is left out."""
    values = {one.name: getattr(tiles, one.name) for one in fields(tiles)}
    values["tile"] = f"{tiles.block_q}x{tiles.block_k}"
    return {IN_ADDRESS[name]: in_url(value) for name, value in values.items() if value is not None}


def applies(broken: str, algorithm: str) -> bool:
    """True where this algorithm has the step that is dropped."""
    return algorithm in BROKEN[broken].applies_to


def count_of(tokens: int, block_q: int) -> int:
    """Query tiles that cover all tokens; the last may be shorter."""
    return -(-tokens // block_q)


def rows_of(query_tile: int, block_q: int, tokens: int) -> range:
    """The tokens of a query tile."""
    start = query_tile * block_q
    return range(start, min(start + block_q, tokens))


def fitted(tiles: Tiles, tokens: int, query: int) -> tuple[Tiles, tuple[str, ...]]:
    """The choices without a query tile or a row that there is not, and the names of those dropped.

    tokens: of the picture, prefix included.
    query: the token of the query.
    """
    dropped = []
    if tiles.query_tile is not None and tiles.query_tile >= count_of(tokens, tiles.block_q):
        tiles = replace(tiles, query_tile=None)
        dropped.append(IN_ADDRESS["query_tile"])
    rows = rows_of(tile_of(tiles, query), tiles.block_q, tokens)
    if tiles.row is not None and tiles.row not in rows:
        tiles = replace(tiles, row=None)
        dropped.append(IN_ADDRESS["row"])
    return tiles, tuple(dropped)


def tile_of(tiles: Tiles, query: int) -> int:
    """The query tile that is walked: the chosen one, else the one that holds the query."""
    return query // tiles.block_q if tiles.query_tile is None else tiles.query_tile


def row_of(tiles: Tiles, rows: range, query: int) -> int:
    """The token that is followed: the chosen one, else the query, else the tile's first."""
    if tiles.row is not None:
        return tiles.row
    return query if query in rows else rows.start


def with_tile(tiles: Tiles, tile: tuple[int, int]) -> Tiles:
    """Another tile size; a query tile chosen by hand stays where its first row is."""
    query_tile = tiles.query_tile
    if query_tile is not None:
        query_tile = query_tile * tiles.block_q // tile[0]
    return replace(tiles, tile=tile, query_tile=query_tile, row=None, step=0)


def with_algorithm(tiles: Tiles, algorithm: str) -> Tiles:
    """Another algorithm from its first step; what cannot be broken in it is whole again."""
    keeps = tiles.broken is not None and applies(tiles.broken, algorithm)
    return replace(tiles, algorithm=algorithm, broken=tiles.broken if keeps else None, step=0)


def for_query(tiles: Tiles) -> Tiles:
    """The same walk for another query: its own tile and row, from the start."""
    return replace(tiles, query_tile=None, row=None, step=0)


def read_tile(text: str) -> tuple[int, int] | None:
    """Queries and keys of a tile, written 64x32."""
    match = TILE.fullmatch(text)
    if match is None or not match[0].isascii():
        return None
    tile = int(match[1]), int(match[2])
    return tile if set(tile) <= {*SIDES} else None


def choice(choices: Mapping[str, Any] | tuple[str, ...]) -> Callable[[str], str | None]:
    return lambda text: text if text in choices else None


def whole(text: str) -> int | None:
    return int(text) if WHOLE.fullmatch(text) else None


def yes_or_no(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text)


READERS: dict[str, Callable[[str], Any]] = {
    "algorithm": choice(ALGORITHMS),
    "tile": read_tile,
    "causal": yes_or_no,
    "query_tile": whole,
    "broken": choice(BROKEN),
    "row": whole,
    "step": whole,
}
"""How each field's text is read; a reader gives None for what makes no sense."""
