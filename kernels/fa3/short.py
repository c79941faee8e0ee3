"""Attention over few keys: those of a head are on chip at once, so no softmax has to go on-line.

Two kernels do this: many heads stream past the multiprocessors (`short_stream`), few are cut into so many
tiles of queries that every multiprocessor gets one (`short_tiles`).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from kernels.problem import Problem

PIECES = (
    (16,),
    (32,),
    (32, 16),
    (64,),
    (64, 16),
    (128,),
    (128, 16),
    (128, 32),
    (128, 64),
    (128, 64, 16),
    (256,),
    (256, 16),
)
"""How the keys of a head may be cut: at most three powers of two, of which only the last reaches past them."""

MOST_KEYS = sum(PIECES[-1])

MOST_KEYS_OF_WIDE = 208
"""With a head_dim from 72 to 128: more scores do not fit in registers beside the output."""

FEW = 132
"""Tiles of 64 queries: one for each multiprocessor."""


def takes(problem: Problem) -> bool:
    """True where this is what to launch: half precision, few keys, head_dim a multiple of 8.

    Wide heads only where there are many of them; few have not been timed.
    """
    if problem.dtype not in ("float16", "bfloat16") or problem.head_dim % 8 or problem.empty:
        return False
    if problem.head_dim <= 64:
        return problem.keys <= MOST_KEYS
    return problem.head_dim <= 128 and problem.keys <= MOST_KEYS_OF_WIDE and not has_few(problem)


def has_few(problem: Problem) -> bool:
    """True where there is hardly a tile for each multiprocessor; and for narrow heads, which TMA was not tried on."""
    tiles = problem.batch * problem.heads * tiles_of(problem.queries)
    return tiles <= FEW or problem.head_dim < 32


def tiles_of(queries: int) -> int:
    """Tiles of 64, the rows of one product of a warpgroup."""
    return -(-queries // 64)


def pieces_for(keys: int) -> tuple[int, ...]:
    """The narrowest cut that holds so many keys.

    Raises:
        ValueError: there are more than any cut holds.
    """
    for pieces in PIECES:
        if keys <= sum(pieces):
            return pieces
    raise ValueError(f"{keys} keys are not few: at most {MOST_KEYS} fit on chip at once.")


def launch_short(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp [batch, heads, queries].

    Where there are many heads, tensors that TMA cannot read (rows not at multiples of 16 bytes) are copied.
    """
    launch_these = launch_few if has_few(Problem.of(q, k, causal)) else launch_many
    return launch_these(q, k, v, scale, causal)


def launch_few(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Like `launch_short`, for so few heads that multiprocessors would be idle."""
    from kernels.fa3.short_tiles import ShortTiles, launch_tiles

    return launch_tiles(q, k, v, scale, causal, ShortTiles(64, pieces_for(k.shape[2]), 4))


# --- many heads --------------------------------------------------------------------------------------------

MOST_TILES = 8
"""Tiles of 64 queries that one unit has: their number is compiled in."""


@cache
def parts_of(heads: int, tiles: int, programs: int) -> int:
    """Into how many parts a head's tiles are best cut, so that all programs end at about the same time."""

    def longest(parts: int) -> float:
        # Keys are brought once a part, which counts as a quarter of a tile.
        return -(-heads * parts // programs) * (-(-tiles // parts) + 0.25)

    return min(range(-(-tiles // MOST_TILES), tiles + 1), key=longest)


@cache
def multiprocessors(device: torch.device) -> int:
    """132 on an H200; also where a kernel is only compiled."""
    if device.type != "cuda":
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


def launch_many(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Like `launch_short`, for so many heads that each multiprocessor gets some."""
    from kernels.fa3.short_stream import stream_kernel
    from kernels.fa3.short_worker import ROWS, Sizes, Stream
    from kernels.hopper import copyable, describe
    from kernels.tile_sizes import padded
    from kernels.tiles import fold_scale, launch, on_device_of

    problem = Problem.of(q, k, causal)
    q, scale_log2e, negative = fold_scale(q, scale)
    q, k, v = copyable(q), copyable(k), copyable(v)
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    programs, heads = multiprocessors(q.device), problem.batch * problem.heads
    tiles = tiles_of(problem.queries)
    parts = parts_of(heads, tiles, programs)
    pieces, width = pieces_for(problem.keys), padded(problem.head_dim)
    stages, slots = (2, 6) if width <= 64 else (1, 4)
    stream = Stream(width, pieces, -(-tiles // parts), parts, stages, slots, causal, negative, True)
    sizes = Sizes(heads * parts, problem.heads, problem.group, problem.queries, problem.keys)
    absent = [None] * (3 - len(pieces))
    with on_device_of(q):
        launch(
            stream_kernel,
            min(programs, sizes.units),
            describe(q, ROWS.value, width),
            *[describe(k, piece, width) for piece in pieces],
            *absent,
            *[describe(v, piece, width) for piece in pieces],
            *absent,
            describe(output, ROWS.value, width),
            log_sum_exp,
            sizes,
            -scale_log2e if negative else scale_log2e,
            stream,
            num_warps=4,
            maxnreg=168,
            launch_pdl=stream.close,
        )
    return output, log_sum_exp
