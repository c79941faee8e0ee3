"""The choices of the page Speed and memory, and their form in the address. Pure: no Streamlit here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from app.jobs import Entry
from app.memory import SIDES
from app.state import in_url, read_into
from kernels import Problem
from kernels.registry import IMPLEMENTATIONS
from vit.config import PRESETS

PATCH = PRESETS["dinov2-small"].patch
TOKENS = (257, 577, 1370, 2501, 5477, 12101, 21905, 49285)
"""Square pictures of 224, 336, 518, 700, 1036, 1540, 2072 and 3108 pixels, patches of 14, and one more."""

VALUES = {
    "tokens": TOKENS,
    "batch": (1, 2, 4, 8, 16, 32, 64),
    "heads": (1, 2, 3, 6, 12, 16, 32),
    "head_dim": (32, 48, 64, 80, 96, 128, 192, 256),
}
"""What can grow, and its values from which a sweep takes the first ones."""

FEWEST = 3  # values of a sweep
DTYPES = ("bfloat16", "float16", "float32")
DIRECTIONS = ("forward", "forward+backward")
WHOLE = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True)
class Sweep:
    """What is measured. The value of what grows stands for the largest; the others are fixed."""

    over: str = "tokens"  # a key of VALUES
    tokens: int = 5477
    batch: int = 1
    heads: int = 6
    head_dim: int = 64
    dtype: str = "float32"
    causal: bool = False
    direction: str = "forward"
    implementations: tuple[str, ...] = ("eager", "torch-cpu-flash", "naive", "fa2")
    hbm: bool = False
    try_anyway: bool = False

    @property
    def values(self) -> tuple[int, ...]:
        """The values of what grows."""
        last = getattr(self, self.over)
        return tuple(value for value in VALUES[self.over] if value <= last)

    def problem(self, value: int) -> Problem:
        """The problem in which what grows has this value."""
        at = replace(self, **{self.over: value})
        return Problem(
            at.batch, at.heads, at.tokens, at.tokens, at.head_dim, self.dtype, self.causal
        )

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self.problem(value) for value in self.values)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Small problems first, all implementations of one problem side by side."""
        return tuple(
            (problem, name, self.direction)
            for problem in self.problems
            for name in self.implementations
        )


ON_CPU = Sweep()
ON_GPU = Sweep(
    tokens=21905,
    dtype="bfloat16",
    implementations=("naive", "fa2", "fa3", "sdpa-flash", "sdpa-cudnn"),
    hbm=True,
)

IN_ADDRESS = {
    "over": "over",
    "tokens": "tokens",
    "batch": "batch",
    "heads": "heads",
    "head_dim": "width",
    "dtype": "numbers",
    "causal": "causal",
    "direction": "pass",
    "implementations": "with",
    "hbm": "hbm",
    "try_anyway": "try",
}
"""Each field's name in an address, none of them one of `State`'s."""


def from_url(params: Mapping[str, str], default: Sweep) -> tuple[Sweep, tuple[str, ...]]:
    """The sweep that an address asks for, and the names of the values that had to be dropped."""
    sweep, dropped = read_into(default, params, READERS, IN_ADDRESS)
    return enough(sweep), dropped


def to_url(sweep: Sweep) -> dict[str, str]:
    """The address's parameters."""
    return {IN_ADDRESS[one.name]: in_url(getattr(sweep, one.name)) for one in fields(sweep)}


def enough(sweep: Sweep) -> Sweep:
    """The sweep with as many values of what grows as a line needs."""
    least = VALUES[sweep.over][FEWEST - 1]
    return replace(sweep, **{sweep.over: max(getattr(sweep, sweep.over), least)})


def growing(sweep: Sweep, over: str, default: Sweep) -> Sweep:
    """The same with something else growing: up to as far as usual, what grew before at its usual value."""
    usual = {"tokens": 1370, "batch": 1, "heads": 6, "head_dim": 64}
    largest = {"tokens": default.tokens, "batch": 16, "heads": 16, "head_dim": 128}
    return replace(sweep, **{sweep.over: usual[sweep.over]}, **{"over": over, over: largest[over]})


def pixels(tokens: int) -> int | None:
    """The side of the square picture with this many tokens, or None where there is none."""
    sides = {(side // PATCH) ** 2 + 1: side for side in (*SIDES, 336, 700)}
    return sides.get(tokens)


def choice(choices: tuple[str, ...]) -> Callable[[str], str | None]:
    return lambda text: text if text in choices else None


def one_of_values(name: str) -> Callable[[str], int | None]:
    """One of the values of what can grow, as its text."""
    return lambda text: int(text) if WHOLE.fullmatch(text) and int(text) in VALUES[name] else None


def yes_or_no(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text)


def read_names(text: str) -> tuple[str, ...] | None:
    """One or more implementations, each once, written naive,fa2."""
    names = tuple(text.split(","))
    known = len(set(names)) == len(names) and set(names) <= {*IMPLEMENTATIONS}
    return names if known else None


READERS: dict[str, Callable[[str], Any]] = {
    "over": choice(tuple(VALUES)),
    **{name: one_of_values(name) for name in VALUES},
    "dtype": choice(DTYPES),
    "causal": yes_or_no,
    "direction": choice(DIRECTIONS),
    "implementations": read_names,
    "hbm": yes_or_no,
    "try_anyway": yes_or_no,
}
"""How each field's text is read; a reader gives None for what makes no sense."""
