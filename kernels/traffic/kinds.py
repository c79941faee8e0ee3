"""Programs of one launch that move the same bytes, so that two of them stand for all.

Which tile a program has decides what it moves: a whole one, or the last, which reaches past the edge. Under a
causal mask every tile sees another number of keys. What heads share is of one kind anyway.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from triton.runtime import interpreter

from kernels.traffic.count import Count
from kernels.traffic.ledger import TrafficError

Arguments = Mapping[str, Any]
"""Of a launch, by name: tensors, numbers, and numbers that the compiler knows."""

KindOf = Callable[[Arguments, int], Hashable]
"""(arguments, program) -> equal for programs that move the same bytes."""


def by_head(arguments: Arguments, program: int) -> Hashable:
    """A program has a whole head, and heads are alike."""
    return True


def by_tile(rows: str, block: str) -> KindOf:
    """A program has one tile of one head, `program % tiles`; see `place_of_program`."""

    def kind(arguments: Arguments, program: int) -> Hashable:
        tiles = tiles_in(arguments[rows], arguments[block])
        tile = program % tiles
        return tile if arguments.get("CAUSAL") else tile == tiles - 1

    return kind


def by_tile_of_matrix(arguments: Arguments, program: int) -> Hashable:
    """A program has one tile of the N x N matrix, in the order of tl.swizzle2d; the mask hides no load."""
    down = tiles_in(arguments["queries"], arguments["BLOCK_Q"])
    across = tiles_in(arguments["stored_keys"], arguments["BLOCK_K"])
    band, place = divmod(program % (down * across), 8 * across)
    column, row = divmod(place, min(8, down - 8 * band))
    return 8 * band + row == down - 1, column == across - 1


def by_tile_and_first(arguments: Arguments, program: int) -> Hashable:
    """As `by_tile` of queries, where the first program of all has something to do for all."""
    return program == 0, by_tile("queries", "BLOCK_Q")(arguments, program)


def by_keys_of_fa3(arguments: Arguments, program: int) -> Hashable:
    """A program has one tile of keys, or a part of its walk; the first tile of a head adds to dQ before all others.

    See `key_tile_of`: behind the first `whole` programs those of the parts of a tile follow one another.
    """
    tiles, heads = tiles_in(arguments["keys"], arguments["BLOCK_K"]), arguments["together"]
    tile, part = program // heads if heads > 1 else program % tiles, -1
    if program >= arguments["whole"]:
        behind, part = divmod(program - arguments["whole"], arguments["parts"])
        tile = (arguments["whole"] + behind) % tiles
    return tile if arguments["CAUSAL"] else (part, tile == 0, tile == tiles - 1)


def by_half_of_keys(arguments: Arguments, program: int) -> Hashable:
    """A program has one half of a tile of keys, behind the first `whole` tiles."""
    tile = (arguments["whole"] + program // 2) % arguments["key_tiles"]
    return program % 2, tile == arguments["key_tiles"] - 1


def by_piece_of_dq(arguments: Arguments, program: int) -> int:
    """A program has one of the two pieces of a tile of queries."""
    return program % (2 * tiles_in(arguments["queries"], arguments["BLOCK_Q"]))


def shares_of_dq(count: Count, arguments: Arguments, program: int) -> int:
    """1 where the pass before has added to this piece, else 0: under a causal mask where a tile sees no key."""
    walked = count.launched["pass_kernel"]
    tile = by_piece_of_dq(arguments, program) // 2
    unseen = walked["queries"] - walked["keys"] if walked["CAUSAL"] else 0
    return int((tile + 1) * arguments["BLOCK_Q"] > unseen)


def tiles_in(length: int, block: int) -> int:
    """Tiles that cover so many rows."""
    return -(-length // block)


KINDS: dict[tuple[str, str], KindOf] = {
    ("kernels.fa1.forward", "forward_kernel"): by_head,
    ("kernels.fa1.backward", "backward_kernel"): by_head,
    ("kernels.fa2.forward", "forward_kernel"): by_tile("queries", "BLOCK_Q"),
    ("kernels.fa2.backward", "delta_kernel"): by_tile("queries", "BLOCK_Q"),
    ("kernels.fa2.backward_keys", "keys_kernel"): by_tile("keys", "BLOCK_K"),
    ("kernels.fa2.backward_queries", "queries_kernel"): by_tile("queries", "BLOCK_Q"),
    ("kernels.fa3.twin", "forward_kernel"): by_tile("queries", "ROWS"),
    ("kernels.fa3.backward_edges", "prepare_kernel"): by_tile_and_first,
    ("kernels.fa3.backward_edges", "finish_kernel"): by_piece_of_dq,
    ("kernels.fa3.twin_backward", "pass_kernel"): by_keys_of_fa3,
    ("kernels.fa3.backward_edges", "parts_kernel"): by_half_of_keys,
    ("kernels.naive.products", "pairs_kernel"): by_tile_of_matrix,
    ("kernels.naive.products", "sums_kernel"): by_tile("rows", "BLOCK_ROWS"),
    ("kernels.naive.forward", "softmax_kernel"): by_tile("rows", "BLOCK_Q"),
    ("kernels.naive.backward", "softmax_backward_kernel"): by_tile("queries", "BLOCK_Q"),
}
"""(module, kernel) -> the kind of a program. Of a kernel that is not here every program is run."""

LOADED: dict[tuple[str, str], Callable[[Count, Arguments, int], int]] = {
    ("kernels.fa3.backward_edges", "finish_kernel"): shares_of_dq,
}
"""(module, kernel) -> the integer that a program loads, where a mask hangs on it."""


def run_each_kind(executor: Any, arguments: Sequence[Any], named: Arguments, count: Count) -> None:
    """Run the first and the last program of each kind, and let their bytes stand for all of it.

    Stands in for the call of Triton's GridExecutor.

    Raises:
        TrafficError: the two differ, so that they are not of one kind, or the interpreter failed.
    """
    kernel = executor.fn
    known = inspect.getfullargspec(kernel).args
    given = {name: value for name, value in named.items() if name in known}
    bound = inspect.getcallargs(kernel, *arguments, **given)
    (programs,) = executor.grid
    count.launched[kernel.__name__] = bound
    language = interpreter._patch_lang(kernel)
    try:
        handed = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in bound.items()
        }
        interpreter.interpreter_builder.set_grid_dim(programs, 1, 1)
        moved = [
            bytes_of_kind(kernel, bound, handed, members, count)
            for members in members_of_kinds(kernel, bound, programs)
        ]
    except TrafficError:
        raise
    except Exception as trouble:
        raise TrafficError(
            f"Triton's interpreter failed at {kernel.__name__} ({trouble!r}); take the formula."
        ) from trouble
    finally:
        language.restore()
    count.add(read=sum(read for read, _ in moved), written=sum(written for _, written in moved))


def members_of_kinds(kernel: Any, arguments: Arguments, programs: int) -> list[list[int]]:
    """The programs of each kind."""
    kind_of = KINDS.get((kernel.__module__, kernel.__name__), lambda _, program: program)
    kinds: dict[Hashable, list[int]] = {}
    for program in range(programs):
        kinds.setdefault(kind_of(arguments, program), []).append(program)
    return list(kinds.values())


def bytes_of_kind(
    kernel: Any, bound: Arguments, handed: Arguments, members: Sequence[int], count: Count
) -> tuple[int, int]:
    """Bytes read and written by all programs of one kind. `handed`: the arguments as the interpreter wants them."""
    found, loads = set(), LOADED.get((kernel.__module__, kernel.__name__))
    for program in {members[0], members[-1]}:
        count.integer = loads(count, bound, program) if loads else 0
        interpreter.interpreter_builder.set_grid_idx(program, 0, 0)
        kernel(**handed)
        found.add(count.take())
    count.integer = 0
    if len(found) > 1:
        raise TrafficError(
            f"Programs {members[0]} and {members[-1]} of {kernel.__name__} should move the same bytes and do "
            "not; its entry in kernels/traffic/kinds.py is wrong."
        )
    read, written = found.pop()
    return read * len(members), written * len(members)
