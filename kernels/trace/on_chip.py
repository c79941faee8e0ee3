"""What one program holds on chip, and the line of code that a step shows."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernels.naive.tile_sizes import WIDTH_AT_ONCE
from kernels.story import story
from kernels.tile_sizes import padded
from kernels.trace.steps import TraceError

FLOAT32 = 4


def sram_bytes(implementation: str, block_q: int, block_k: int, head_dim: int, dtype: str) -> int:
    """Bytes of the tiles that one program holds at once: Q, K, V, S, m, l and O; by formula.

    Registers and shared memory together, each tile once: the compiler may keep a copy, and pipeline stages
    need more. head_dim is padded to its tile. naive: the larger of its two products.

    Raises:
        TraceError: there is no walk of this implementation.
    """
    element, width = getattr(torch, dtype).itemsize, padded(head_dim)
    square, query_side = block_q * block_k, block_q * width
    key_and_value = 2 * block_k * width * element
    if implementation in ("fa1", "fa2", "fa3"):
        state = (query_side + 2 * block_q) * FLOAT32  # O, m and l
        return query_side * element + key_and_value + square * FLOAT32 + state
    if implementation == "fa2-backward":  # Q and dO; S and dP; dQ, log-sum-exp and delta
        state = (query_side + 2 * block_q) * FLOAT32
        return 2 * query_side * element + key_and_value + 2 * square * FLOAT32 + state
    if implementation == "naive":
        at_once = min(width, WIDTH_AT_ONCE[element])
        pairs = (block_q + block_k) * at_once * element + square * FLOAT32
        sums = square * element + key_and_value // 2 + query_side * FLOAT32
        return max(pairs, sums)
    raise TraceError(f"{implementation} has no walk; choose naive, fa1, fa2, fa3 or fa2-backward.")


class SourceLine(NamedTuple):
    """The first line of code of a step."""

    file: str  # in the repository, such as "kernels/fa2/forward.py"
    line: int  # counted from 1
    text: str
    around: tuple[
        str, ...
    ]  # the code of the whole step; `text` is the first of it that is no comment


def source_line(implementation: str, title: str) -> SourceLine:
    """Where the code of a step begins: `title` is a heading of the implementation's story.md.

    Raises:
        TraceError: the story has no such heading.
    """
    name = implementation.removesuffix("-backward")
    for step in story(name):
        if step.title == title:
            around = tuple(step.code.splitlines())
            first = next(n for n, line in enumerate(around) if is_code(line))
            return SourceLine(
                f"kernels/{name}/{step.source}", step.line + 1 + first, around[first], around
            )
    raise TraceError(f"The story of {implementation} has no step {title!r}.")


def is_code(line: str) -> bool:
    """Neither empty nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")
