"""Calls of device helpers that need not be made again, where every float is zero.

What a helper gives and moves then follows from the shapes and the whole numbers that it is handed, so a second
call with the same ones is answered from memory, bytes included. A tile of keys goes past many tiles of
queries in the same way, and Triton's interpreter takes milliseconds for each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from kernels.traffic.count import Count
from kernels.traffic.without_values import is_float

MOST_REMEMBERED = 20_000
"""Calls; a few kilobytes each."""


class Remembered:
    """The calls so far; for one use of the interpreter without values."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.known: dict[Hashable, tuple[Any, int, int]] = {}
        self.places_asked = 0  # how often a program asked which one it is

    def replacements(self) -> list[tuple[Any, str, Any]]:
        """Whose attribute, its name, and what stands there."""
        builder: Any = interpreter.InterpreterBuilder
        program_id = builder.create_get_program_id

        def noted(builder, axis):
            self.places_asked += 1
            return program_id(builder, axis)

        return [(builder, "create_get_program_id", noted)]

    def call(self, helper: Any, run: Callable, arguments: tuple, named: Mapping[str, Any]) -> Any:
        """What `run` gives, and the bytes it moves added to the count."""
        key = (helper.fn, described(arguments), described(tuple(named.items())))
        try:
            known = self.known.get(key)
        except TypeError:  # something in it cannot be a key; nothing is lost but time
            return run(*arguments, **named)
        if known is not None:
            result, read, written = known
            self.count.add(read, written)
            return result
        read, written = self.count.newest
        asked = self.places_asked
        result = run(*arguments, **named)
        # What depends on the program's place depends on more than the arguments.
        if self.places_asked == asked and len(self.known) < MOST_REMEMBERED:
            read_after, written_after = self.count.newest
            self.known[key] = result, read_after - read, written_after - written
        return result


def described(value: Any) -> Hashable:
    """Equal for what no helper can tell apart: of floats and pointers the shape alone counts."""
    if isinstance(value, tl.tensor):
        handle = value.handle
        if is_float(handle) or handle.dtype.is_ptr():
            return str(value.type), handle.data.shape
        return str(value.type), handle.data.shape, handle.data.tobytes()
    if isinstance(value, tl.constexpr):
        return "constexpr", described(value.value)
    if isinstance(value, tuple | list | tl.tuple):
        return tuple(described(one) for one in value)
    return type(value), value
