"""Bytes after every step of a walk: seen at the loads and stores, or by formula where the kernel is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from torch import Tensor

from kernels.naive.tile_sizes import softmax_tiles, stored_columns
from kernels.trace.cut import Cut
from kernels.traffic.sizes import FLOAT32
from kernels.triton_mode import INTERPRETER_LOCK, interprets

Moved = tuple[int, int]
"""Bytes read and written so far."""


# --- counted ------------------------------------------------------------------------------------------


@contextmanager
def watched(traces: Sequence[Tensor]) -> Iterator[list[Moved]]:
    """Inside, kernels are interpreted and their bytes counted; afterwards the list says what had been moved when
    each page of the traces [pages, rows, columns] was last written, page after page, trace after trace.

    Writing into a trace is not counted. The last page gets all that was moved up to the end.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    from kernels.traffic.counting import counting, swapped

    seen: dict[tuple[int, int], Moved] = {}
    found: list[Moved] = []
    with INTERPRETER_LOCK:
        plain = InterpreterBuilder.create_masked_store
        with counting(values=True) as count:
            counted = InterpreterBuilder.create_masked_store

            def so_far() -> Moved:
                launches = count.launches
                return sum(x.bytes_read for x in launches), sum(x.bytes_written for x in launches)

            def store(self, pointers, *rest, **named):
                page = page_of(int(pointers.data.flat[0]), traces)
                if page is None:
                    return counted(self, pointers, *rest, **named)
                seen[page] = so_far()
                return plain(self, pointers, *rest, **named)

            with swapped(InterpreterBuilder, "create_masked_store", store):
                yield found
        pages = [(n, page) for n, trace in enumerate(traces) for page in range(len(trace))]
        found += [seen[page] for page in pages[:-1]] + [so_far()]


def page_of(address: int, traces: Sequence[Tensor]) -> tuple[int, int] | None:
    """Which trace and which of its pages begins at an address or before it; None where none does."""
    for n, trace in enumerate(traces):
        behind = address - trace.data_ptr()
        if 0 <= behind < trace.nbytes:
            return n, behind // trace[0].nbytes
    return None


@contextmanager
def not_watched(cut: Cut) -> Iterator[list[Moved]]:
    """The same where kernels are compiled: by formula."""
    yield bytes_by_formula(cut)


def watching(cut: Cut, traces: Sequence[Tensor]):
    """The one that this machine has."""
    return watched(traces) if interprets() else not_watched(cut)


# --- by formula ---------------------------------------------------------------------------------------


def bytes_by_formula(cut: Cut) -> list[Moved]:
    """After each step; the last one has what follows it too: the output, the log-sum-exp."""
    return BY_FORMULA[cut.implementation](cut)


def vector(cut: Cut) -> int:
    """Bytes of one query, key or value."""
    return cut.width * cut.q.element_size()


def ends(cut: Cut) -> list[int]:
    """Keys read after each tile."""
    return list(accumulate(cut.span(step)[1] for step in range(cut.steps)))


def fa2(cut: Cut) -> list[Moved]:
    """Q, then K and V tile by tile, in whichever order."""
    found = [((cut.rows + 2 * end) * vector(cut), 0) for end in ends(cut)]
    return [*found[:-1], (found[-1][0], cut.rows * (vector(cut) + FLOAT32))]


def fa2_backward(cut: Cut) -> list[Moved]:
    """Q, dO, log-sum-exp and delta, then K and V tile by tile."""
    own = cut.rows * 2 * (vector(cut) + FLOAT32)
    found = [(own + 2 * end * vector(cut), 0) for end in ends(cut)]
    return [*found[:-1], (found[-1][0], cut.rows * vector(cut))]


def fa1(cut: Cut) -> list[Moved]:
    """K, V and Q at every visit; between two of them O, m and l go out and come back."""
    state, row = cut.rows * (cut.width + 2) * FLOAT32, cut.rows * vector(cut)
    found = [
        (2 * end * vector(cut) + (n + 1) * row + n * state, (n + 1) * state)
        for n, end in enumerate(ends(cut))
    ]
    return [*found[:-1], (found[-1][0], found[-1][1] - state + row + cut.rows * FLOAT32)]


def naive(cut: Cut) -> list[Moved]:
    """S tile by tile; P over it; then P and V tile by tile."""
    columns, element = stored_columns(cut.keys), cut.q.element_size()
    stored = [min(columns, (n + 1) * cut.tiles.block_k) for n in range(cut.steps)]
    found = [
        ((cut.rows * (n + 1) + end) * vector(cut), cut.rows * stored[n] * element)
        for n, end in enumerate(ends(cut))
    ]
    read, written = found[-1]
    matrix = cut.rows * columns * element
    read += matrix if columns <= softmax_tiles(columns).block_k else 2 * matrix
    written += matrix + cut.rows * FLOAT32
    found.append((read, written))
    found += [
        (read + cut.rows * stored[n] * element + end * vector(cut), written)
        for n, end in enumerate(ends(cut))
    ]
    return [*found[:-1], (found[-1][0], written + cut.rows * vector(cut))]


BY_FORMULA = {"naive": naive, "fa1": fa1, "fa2": fa2, "fa3": fa2, "fa2-backward": fa2_backward}
"""implementation -> its bytes, step by step."""
