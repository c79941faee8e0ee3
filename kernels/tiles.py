# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
"""Device helpers that every kernel shares: tiles in and out, and one step of the online softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.triton_mode import take_turns
from kernels.watch import note

take_turns()


@triton.jit
def load_tile(
    base,
    first_row,
    rows,
    strides,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    MASK_ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Rows first_row ... of a [rows, WIDTH] matrix, zero beyond its edges. -> [BLOCK_ROWS, BLOCK_WIDTH]"""
    pointers, mask = tile_pointers(
        base, first_row, rows, strides, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, MASK_ROWS, WIDE
    )
    if MASK_ROWS or WIDTH != BLOCK_WIDTH:
        return tl.load(pointers, mask=mask, other=0.0)
    return tl.load(pointers)


@triton.jit
def load_whole_rows(start, offsets, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    """A tile all of whose rows exist, from the pointer to its first element; zero beyond WIDTH. -> like offsets

    For long loops: one pointer that moves on, and offsets that stay, leave the least arithmetic between
    two products.
    """
    if WIDTH != BLOCK_WIDTH:
        column = tl.arange(0, BLOCK_WIDTH)[None, :]
        return tl.load(start + offsets, mask=column < WIDTH, other=0.0)
    return tl.load(start + offsets)


@triton.jit
def tile_offsets(strides, BLOCK_ROWS: tl.constexpr, BLOCK_WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Where the elements of a tile lie, counted from its first; WIDE where that can pass 2^31."""
    row = tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.arange(0, BLOCK_WIDTH)[None, :]
    if WIDE:
        row, column = row.to(tl.int64), column.to(tl.int64)
    return row * strides[0] + column * strides[1]


@triton.jit
def step_of(strides, BLOCK_ROWS: tl.constexpr):
    """How far the next tile of rows is from this one, int64."""
    return tl.cast(strides[0], tl.int64) * BLOCK_ROWS


@triton.jit
def store_tile(
    base,
    tile,
    first_row,
    rows,
    strides,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Write [BLOCK_ROWS, BLOCK_WIDTH] to rows first_row ... of a [rows, WIDTH] matrix, inside its edges."""
    pointers, mask = tile_pointers(
        base, first_row, rows, strides, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True, WIDE
    )
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=mask)


@triton.jit
def tile_pointers(
    base,
    first_row,
    rows,
    strides,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    MASK_ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Pointers of a tile and the mask of what lies inside; WIDE where offsets inside a tile pass 2^31."""
    row = tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.arange(0, BLOCK_WIDTH)[None, :]
    mask = (column < WIDTH) & ((first_row + row < rows) | (not MASK_ROWS))
    start = base + tl.cast(first_row, tl.int64) * strides[0]
    return start + tile_offsets(strides, BLOCK_ROWS, BLOCK_WIDTH, WIDE), mask


@triton.jit
def load_vector(base, first, size, other, BLOCK: tl.constexpr):
    """Numbers first ... of `size` that lie side by side, `other` beyond the end. -> [BLOCK]"""
    place = first + tl.arange(0, BLOCK)
    return tl.load(base + place, mask=place < size, other=other)


@triton.jit
def load_strided(
    base, first, size, stride, other, BLOCK: tl.constexpr, MASKED: tl.constexpr, WIDE: tl.constexpr
):
    """Numbers first ... of `size` that lie `stride` apart, `other` beyond the end. -> [BLOCK]"""
    place = tl.arange(0, BLOCK)
    mask = first + place < size
    if WIDE:
        place = place.to(tl.int64)
    start = base + tl.cast(first, tl.int64) * stride
    if MASKED:
        return tl.load(start + place * stride, mask=mask, other=other)
    return tl.load(start + place * stride)


@triton.jit
def store_vector(base, vector, first, size, BLOCK: tl.constexpr):
    """Write [BLOCK] to places first ... of `size`."""
    place = first + tl.arange(0, BLOCK)
    tl.store(base + place, vector.to(base.dtype.element_ty), mask=place < size)


@triton.jit
def place_of_program(tokens, heads, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr = False):
    """-> the first token of this program's tile, and its batch * heads + head, batch and head (int64).

    All on the first axis of the grid, which has no limit of 65535; neighbours share a head's keys in L2.
    LAST_FIRST where the last tiles have most to do: long work begun early leaves no long end.
    """
    tiles = tl.cdiv(tokens, BLOCK)
    tile = tl.program_id(0) % tiles
    if LAST_FIRST:
        tile = tiles - 1 - tile
    batch_head = (tl.program_id(0) // tiles).to(tl.int64)
    return tile * BLOCK, batch_head, batch_head // heads, batch_head % heads


@triton.jit
def keys_in_sight(query_start, queries, keys, BLOCK_Q: tl.constexpr, CAUSAL: tl.constexpr):
    """-> the first key hidden from each query [BLOCK_Q], and how many keys all and any of them see."""
    query = query_start + tl.arange(0, BLOCK_Q)
    if CAUSAL:
        first_unseen = tl.minimum(keys, query + 1 + keys - queries)
        seen_by_all = tl.maximum(0, tl.minimum(keys, query_start + 1 + keys - queries))
        seen_by_any = tl.minimum(keys, query_start + BLOCK_Q + keys - queries)
        return first_unseen, seen_by_all, seen_by_any
    return tl.full([BLOCK_Q], keys, tl.int32), keys, keys


@triton.jit
def head_pointer(base, strides, batch, head):
    """Where one head of a [batch, heads, tokens, head_dim] tensor begins; batch and head are int64."""
    return base + batch * strides[0] + head * strides[1]


@triton.jit
def weights_from_lse(scores, log_sum_exp, scale_log2e):
    """P = exp(scale * scores - log_sum_exp); both broadcast. Any sign of the scale will do.

    A query that sees nothing has log-sum-exp -inf, which gives +inf or NaN here: mask it afterwards.
    Dao et al. 2022, Algorithm 4 line 11; Dao 2023, Algorithm 2 line 11.
    """
    return tl.math.exp2(scores * scale_log2e - log_sum_exp * 1.4426950408889634)


@triton.jit
def online_softmax_update(
    scores,
    running_max,
    running_sum,
    scale_log2e,
    MASKED: tl.constexpr,
    BROKEN: tl.constexpr = None,
):
    """Fold one tile of raw scores into the running maximum and sum (both in base-2 units).

    -> weights [BLOCK_Q, BLOCK_K], the new maximum and sum, and the factor for what was summed before.
    Milakov and Gimelshein 2018, Algorithm 3; Dao 2023, Algorithm 1 lines 9 and 10. BROKEN: what is left out,
    a name of `kernels.trace.BROKEN`, to show why it stands here.
    """
    if BROKEN == "log-base":
        scale_log2e = scale_log2e * 0.6931471805599453  # log(2): base e goes into a power of 2
    new_max = tl.maximum(running_max, tl.max(scores, 1) * scale_log2e)
    if BROKEN == "no-maximum":
        new_max = tl.zeros_like(new_max)
    shift = new_max
    if MASKED:
        # A row that has seen nothing yet stays at -inf, and -inf - -inf would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    weights = tl.math.exp2(scores * scale_log2e - shift[:, None])
    rescale = tl.math.exp2(running_max - shift)
    if BROKEN == "alpha-upside-down":
        rescale = upside_down(running_max, shift)
    if BROKEN == "sum-not-rescaled":
        return weights, new_max, running_sum + tl.sum(weights, 1), rescale
    return weights, new_max, running_sum * rescale + tl.sum(weights, 1), rescale


@triton.jit
def upside_down(running_max, new_max):
    """1 / rescale; 0 where nothing was seen before, so that this mistake shows, and not -inf's NaN."""
    saw_nothing = running_max == float("-inf")
    return tl.where(saw_nothing, 0.0, tl.math.exp2(new_max - running_max))


# --- one tile of queries, cut out of its problem to be traced ----------------------------------------------


@triton.jit
def write_step(trace, step, scores, running_max, running_sum, rescale, output):
    """Page `step` of a trace, for each row: scores, output, maximum, sum, rescale factor, as they are here."""
    first = trace[1] - 3
    write_columns(trace, step, 0, scores)
    write_columns(trace, step, first - output.shape[1], output)
    write_columns(trace, step, first, running_max[:, None])
    write_columns(trace, step, first + 1, running_sum[:, None])
    write_columns(trace, step, first + 2, rescale[:, None])


@triton.jit
def write_columns(trace, step, first, tile):
    """Write [rows, width] to page `step` of a trace, from column `first` on."""
    row = step * tile.shape[0] + tl.arange(0, tile.shape[0])[:, None]
    column = first + tl.arange(0, tile.shape[1])[None, :]
    tl.store(trace[0] + row * trace[1] + column, tile.to(tl.float32))


@triton.jit
def queries_of_whole(queries, keys, trace):
    """The queries by which the causal mask is laid: those behind a traced tile count too, though cut off."""
    if trace is not None:
        return keys - trace[2]
    return queries


Trace = tuple[Tensor, int, int] | None
"""Where a kernel writes its steps, float32 [steps, rows, columns]; the columns; and which query of the whole
problem the first one here is. None where nothing is traced: the compiler then drops all of it."""


# --- launch -----------------------------------------------------------------------------------------------


def fold_scale(q: Tensor, scale: float) -> tuple[Tensor, float, bool]:
    """-> q, scale * log2(e) made positive, and whether q is to be negated for it.

    The running maximum is taken of raw scores, so the factor on them must be positive. A scale of zero
    gives scores of zero whatever q holds: a query of zeros, seen through stride 0.
    """
    if scale == 0.0:
        return q.new_zeros(()).expand_as(q), math.log2(math.e), False
    return q, abs(scale) * math.log2(math.e), scale < 0


def offsets_are_wide(*tensors: Tensor, rows: int = 256) -> bool:
    """True where an offset inside one tile of `rows` rows could pass 32 bits."""
    return any(rows * max(map(abs, t.stride()[-2:]), default=0) >= 2**31 for t in tensors)


def launch(kernel: Any, programs: int, *arguments: Any, **named: Any) -> None:
    """Launch so many programs, and let `kernels.repeat` know of it."""
    compiled = kernel[(programs,)](*arguments, **named)
    note(kernel, compiled, programs, arguments, named)


def on_device_of(tensor: Tensor):
    """Launch on the tensor's own GPU, whichever is current."""
    return torch.cuda.device(tensor.device if tensor.is_cuda else -1)
