# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The two tiled matrix products of the naive kernels: one makes an N x N matrix, one uses it up."""

from __future__ import annotations

from torch import Tensor

from kernels.naive.tile_sizes import PAIRS, SUMS, WIDTH_AT_ONCE
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    Trace,
    head_pointer,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    queries_of_whole,
    store_tile,
    tl,
    triton,
    write_columns,
)


@triton.jit
def block_pointers(
    base,
    first_row,
    rows,
    first_column,
    columns,
    strides,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Pointers of a block of a [rows, columns] matrix, and the mask of what lies inside."""
    row = tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.arange(0, BLOCK_COLUMNS)[None, :]
    mask = (first_row + row < rows) & (first_column + column < columns)
    if WIDE:
        row, column = row.to(tl.int64), column.to(tl.int64)
    start = (
        base
        + tl.cast(first_row, tl.int64) * strides[0]
        + tl.cast(first_column, tl.int64) * strides[1]
    )
    return start + row * strides[0] + column * strides[1], mask


@triton.jit
def pairs_kernel(
    left_ptr,
    right_ptr,
    out_ptr,
    left_strides,
    right_strides,
    out_strides,
    heads,
    group,
    queries,
    keys,
    stored_keys,
    factor,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HIDE: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
    trace=None,
):
    """One program: BLOCK_Q x BLOCK_K products of a query's vector with a key's."""
    query_tiles, key_tiles = tl.cdiv(queries, BLOCK_Q), tl.cdiv(stored_keys, BLOCK_K)
    tile = tl.program_id(0) % (query_tiles * key_tiles)
    batch_head = (tl.program_id(0) // (query_tiles * key_tiles)).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    # Programs that run together share eight tiles of queries, so that both sides are found in L2.
    query_tile, key_tile = tl.swizzle2d(
        tile // key_tiles, tile % key_tiles, query_tiles, key_tiles, 8
    )
    query_start, key_start = query_tile * BLOCK_Q, key_tile * BLOCK_K
    left_head = head_pointer(left_ptr, left_strides, batch, head)
    right_head = head_pointer(right_ptr, right_strides, batch, head // group)
    right_transposed = (right_strides[3], right_strides[2])

    products = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    for width_start in range(0, HEAD_DIM, BLOCK_D):
        place, inside = block_pointers(
            left_head, query_start, queries, width_start, HEAD_DIM, left_strides[2:],
            BLOCK_Q, BLOCK_D, WIDE,
        )  # fmt: skip
        left = tl.load(place, mask=inside, other=0.0)  # [BLOCK_Q, BLOCK_D]
        place, inside = block_pointers(
            right_head, width_start, HEAD_DIM, key_start, keys, right_transposed,
            BLOCK_D, BLOCK_K, WIDE,
        )  # fmt: skip
        right = tl.load(place, mask=inside, other=0.0)  # [BLOCK_D, BLOCK_K]
        products = tl.dot(left, right, products, input_precision="ieee")
    products *= factor
    if HIDE:
        query = query_start + tl.arange(0, BLOCK_Q)[:, None]
        key = key_start + tl.arange(0, BLOCK_K)[None, :]
        seen = key < keys
        if CAUSAL:
            seen = seen & (key <= query + keys - queries_of_whole(queries, keys, trace))
        products = tl.where(seen, products, float("-inf"))
    place, inside = block_pointers(
        head_pointer(out_ptr, out_strides, batch, head), query_start, queries,
        key_start, stored_keys, out_strides[2:], BLOCK_Q, BLOCK_K, WIDE,
    )  # fmt: skip
    tl.store(place, products.to(out_ptr.dtype.element_ty), mask=inside)
    if trace is not None:
        write_columns(trace, key_tile, 0, products)


@triton.jit
def sums_kernel(
    matrix_ptr,
    vectors_ptr,
    out_ptr,
    matrix_strides,
    vectors_strides,
    out_strides,
    out_heads,
    members,
    vectors_group,
    rows,
    columns,
    stored_rows,
    stored_columns,
    factor,
    HEAD_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDE: tl.constexpr,
    trace=None,
):
    """One program: BLOCK_ROWS sums of vectors, each with the weights of one row of the matrix."""
    row_start, _, batch, out_head = place_of_program(rows, out_heads, BLOCK_ROWS)
    sums = tl.zeros([BLOCK_ROWS, BLOCK_D], tl.float32)
    for member in range(0, members):
        head = out_head * members + member
        matrix_head = head_pointer(matrix_ptr, matrix_strides, batch, head)
        vectors_head = head_pointer(vectors_ptr, vectors_strides, batch, head // vectors_group)
        for start in range(0, columns, BLOCK_COLUMNS):
            # What is stored behind the last key is 0, so only the vectors are cut off there.
            place, inside = block_pointers(
                matrix_head, row_start, stored_rows, start, stored_columns, matrix_strides[2:],
                BLOCK_ROWS, BLOCK_COLUMNS, WIDE,
            )  # fmt: skip
            weights = tl.load(place, mask=inside, other=0.0)  # [BLOCK_ROWS, BLOCK_COLUMNS]
            vectors = load_tile(
                vectors_head, start, columns, vectors_strides[2:],
                HEAD_DIM, BLOCK_COLUMNS, BLOCK_D, True, WIDE,
            )  # fmt: skip
            sums = tl.dot(weights, vectors, sums, input_precision="ieee")
            if trace is not None:
                write_columns(trace, start // BLOCK_COLUMNS, 0, weights)
                write_columns(trace, start // BLOCK_COLUMNS, BLOCK_COLUMNS, sums)
    store_tile(
        head_pointer(out_ptr, out_strides, batch, out_head), sums * factor, row_start, rows,
        out_strides[2:], HEAD_DIM, BLOCK_ROWS, BLOCK_D, WIDE,
    )  # fmt: skip


def pairs(
    left: Tensor,
    right: Tensor,
    out: Tensor,
    factor: float,
    hide: bool = False,
    causal: bool = False,
    trace: Trace = None,
) -> None:
    """out = factor * left right^T, a number for each pair of a query and a key.

    left is [batch, heads, queries, head_dim], right [batch, kv_heads, keys, head_dim], out [batch, heads,
    queries, stored keys]. With `hide`, what a query may not see becomes -inf, and so do the stored columns
    that belong to no key; without it these become 0. `trace` for `kernels.trace`, with one tile of queries of
    one head: each key tile's products, as they are before they are rounded.
    """
    batch, heads, queries, head_dim = left.shape
    tiles = pick(PAIRS, left.device, left.element_size(), padded(head_dim))
    tiles_of_head = triton.cdiv(queries, tiles.block_q) * triton.cdiv(out.shape[3], tiles.block_k)
    with on_device_of(left):
        pairs_kernel[(tiles_of_head * batch * heads,)](
            left,
            right,
            out,
            left.stride(),
            right.stride(),
            out.stride(),
            heads,
            heads // right.shape[1],
            queries,
            right.shape[2],
            out.shape[3],
            factor,
            HEAD_DIM=head_dim,
            BLOCK_Q=tiles.block_q,
            BLOCK_K=tiles.block_k,
            BLOCK_D=min(padded(head_dim), WIDTH_AT_ONCE[left.element_size()]),
            HIDE=hide,
            CAUSAL=causal,
            WIDE=offsets_are_wide(left, right, out),
            trace=trace,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )


def sums(matrix: Tensor, vectors: Tensor, out: Tensor, factor: float, trace: Trace = None) -> None:
    """out = factor * matrix vectors: each row of the matrix weighs the vectors.

    matrix is [batch, heads, rows, columns] by any strides, so a transposed view will do, and holds zeros
    behind the last key; vectors [batch, heads or kv_heads, columns, head_dim]; out [batch, heads or
    kv_heads, rows, head_dim]. Where out has fewer heads than the matrix, those of a group are summed, in
    order. `trace` for `kernels.trace`, with one tile of rows of one head: weights, and the sums so far.
    """
    batch, out_heads, rows, head_dim = out.shape
    heads = matrix.shape[1]
    tiles = pick(SUMS, out.device, out.element_size(), padded(head_dim))
    with on_device_of(out):
        sums_kernel[(triton.cdiv(rows, tiles.block_q) * batch * out_heads,)](
            matrix,
            vectors,
            out,
            matrix.stride(),
            vectors.stride(),
            out.stride(),
            out_heads,
            heads // out_heads,
            heads // vectors.shape[1],
            rows,
            vectors.shape[2],
            matrix.shape[2],
            matrix.shape[3],
            factor,
            HEAD_DIM=head_dim,
            BLOCK_ROWS=tiles.block_q,
            BLOCK_COLUMNS=tiles.block_k,
            BLOCK_D=padded(head_dim),
            WIDE=offsets_are_wide(matrix, vectors, out),
            trace=trace,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
