# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Before and after the pass: two numbers for each query, and gradients from float32 sums."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.tiles import (
    head_pointer,
    load_strided,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    store_tile,
    tl,
    triton,
)

PIECE = 4096
"""Numbers of dQ that one group of four warps holds: 64 x 64."""


@triton.jit(do_not_specialize=["heads", "queries"])
def prepare_kernel(
    output_ptr,
    grad_output_ptr,
    lse_ptr,
    grad_lse_ptr,
    facts_ptr,
    turns_ptr,
    output_strides,
    grad_output_strides,
    lse_strides,
    grad_lse_strides,
    heads,
    queries,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_GRAD_LSE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """For each query the log-sum-exp in base 2, and delta = sum_d dO_d O_d - dlse.

    A query that is not there or sees nothing gets +inf for the first, and so weight 0 for every key.
    Turns and tickets are set to 0 here too, so that a replay of a graph finds them so.
    """
    start, batch_head, batch, head = place_of_program(queries, heads, BLOCK_Q)
    output = load_tile(
        head_pointer(output_ptr, output_strides, batch, head),
        start, queries, output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    grad_output = load_tile(
        head_pointer(grad_output_ptr, grad_output_strides, batch, head),
        start, queries, grad_output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    log_sum_exp = load_strided(
        head_pointer(lse_ptr, lse_strides, batch, head),
        start, queries, lse_strides[2], float("inf"), BLOCK_Q, True, True,
    )  # fmt: skip
    log_sum_exp = tl.where(log_sum_exp == float("-inf"), float("inf"), log_sum_exp)
    # step: Sum dO times O
    delta = tl.sum(output.to(tl.float32) * grad_output.to(tl.float32), 1)
    if HAS_GRAD_LSE:
        grad_lse_head = head_pointer(grad_lse_ptr, grad_lse_strides, batch, head)
        delta -= load_strided(
            grad_lse_head, start, queries, grad_lse_strides[2], 0.0, BLOCK_Q, True, True
        )
    tile = batch_head * tl.cdiv(queries, BLOCK_Q) + start // BLOCK_Q
    place = facts_ptr + tile * (2 * BLOCK_Q) + tl.arange(0, BLOCK_Q)
    tl.store(place, log_sum_exp * 1.4426950408889634)
    tl.store(place + BLOCK_Q, delta)
    tl.store(turns_ptr + 2 * tile + tl.arange(0, 2), tl.zeros([2], tl.int32))
    if tl.program_id(0) == 0:
        tl.store(turns_ptr + 2 * tl.num_programs(0), 0)


def launch_prepare(
    output: Tensor,
    grad_output: Tensor,
    log_sum_exp: Tensor,
    grad_log_sum_exp: Tensor | None,
    block_q: int,
    block_d: int,
) -> tuple[Tensor, Tensor]:
    """Two facts of each query, and what counts turns.

    float32 [batch * heads * query tiles * 2, block_q]: a row of base-2 log-sum-exp, a row of delta, ...;
    int32 zeros [that many + 1]: a turn for each piece of dQ, and the next ticket.
    """
    batch, heads, queries, head_dim = output.shape
    tiles = batch * heads * triton.cdiv(queries, block_q)
    facts = output.new_empty((tiles * 2, block_q), dtype=torch.float32)
    turns = output.new_empty(tiles * 2 + 1, dtype=torch.int32)
    grad_lse = log_sum_exp if grad_log_sum_exp is None else grad_log_sum_exp
    with on_device_of(output):
        prepare_kernel[(tiles,)](
            output,
            grad_output,
            log_sum_exp,
            grad_lse,
            facts,
            turns,
            output.stride(),
            grad_output.stride(),
            log_sum_exp.stride(),
            grad_lse.stride(),
            heads,
            queries,
            HEAD_DIM=head_dim,
            BLOCK_Q=block_q,
            BLOCK_D=block_d,
            HAS_GRAD_LSE=grad_log_sum_exp is not None,
            WIDE=offsets_are_wide(output, grad_output),
            num_warps=8,
        )
    return facts, turns


@triton.jit
def in_place(numbers, WIDTH: tl.constexpr):
    """[64, WIDTH] from numbers as the threads of the pass held them.

    They lie in the order: group of eight columns, warp, row of eight, pair of columns, upper or lower eight rows,
    first or second of the pair.
    """
    turned = numbers.reshape([WIDTH // 8, 4, 8, 4, 2, 2]).permute(1, 4, 2, 0, 3, 5)
    return turned.reshape([64, WIDTH])


@triton.jit(do_not_specialize=["heads", "queries", "scale"])
def finish_kernel(
    sums_ptr,
    turns_ptr,
    grad_q_ptr,
    grad_q_strides,
    heads,
    queries,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """dQ of 64 queries and 64 dimensions. A piece to which nobody has added holds nothing."""
    piece = tl.program_id(0).to(tl.int64)
    PIECES: tl.constexpr = BLOCK_Q * BLOCK_D // 4096
    tiles = tl.cdiv(queries, BLOCK_Q)
    part, tile, batch_head = piece % PIECES, piece // PIECES % tiles, piece // PIECES // tiles
    row, column = tile * BLOCK_Q, tile * 0
    if BLOCK_D == 64:
        row += part * 64
    else:
        column = part * 64
    added = tl.load(turns_ptr + piece)
    flat = tl.load(sums_ptr + piece * 4096 + tl.arange(0, 4096), mask=added > 0, other=0.0)
    sums = in_place(flat, 64)
    grad_q_head = head_pointer(grad_q_ptr, grad_q_strides, batch_head // heads, batch_head % heads)
    rows = row + tl.arange(0, 64)[:, None].to(tl.int64)
    columns = column + tl.arange(0, 64)[None, :].to(tl.int64)
    tl.store(
        grad_q_head + rows * grad_q_strides[2] + columns * grad_q_strides[3],
        (sums * scale).to(grad_q_ptr.dtype.element_ty),
        mask=(rows < queries) & (columns < HEAD_DIM),
    )


def launch_finish(
    sums: Tensor, turns: Tensor, grad_q: Tensor, scale: float, block_q: int, block_d: int
) -> None:
    """Fill grad_q from the float32 sums of the pass."""
    _, heads, queries, head_dim = grad_q.shape
    with on_device_of(grad_q):
        finish_kernel[(sums.numel() // PIECE,)](
            sums,
            turns,
            grad_q,
            grad_q.stride(),
            heads,
            queries,
            scale,
            HEAD_DIM=head_dim,
            BLOCK_Q=block_q,
            BLOCK_D=block_d,
            num_warps=4,
        )


@triton.jit
def sum_of_parts(place, parts, BLOCK_D: tl.constexpr):
    """dK or dV of 64 keys, from the sums of each part of their walk, in the order of the parts. [64, BLOCK_D]"""
    HELD: tl.constexpr = 64 * BLOCK_D
    numbers = tl.zeros([HELD], tl.float32)
    for _ in range(parts):
        numbers += tl.load(place + tl.arange(0, HELD))
        place += 4 * HELD
    return in_place(numbers, BLOCK_D)


@triton.jit(do_not_specialize=["kv_heads", "keys", "key_tiles", "whole", "parts"])
def parts_kernel(
    parts_ptr,
    grad_k_ptr,
    grad_v_ptr,
    grad_k_strides,
    grad_v_strides,
    kv_heads,
    keys,
    key_tiles,
    whole,
    parts,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDE: tl.constexpr,
):
    """dK and dV of 64 keys whose walk was cut into parts."""
    tile, half = tl.program_id(0) // 2, tl.program_id(0) % 2
    place = parts_ptr + (tile * parts * 4 + half).to(tl.int64) * (64 * BLOCK_D)
    grad_k = sum_of_parts(place, parts, BLOCK_D)
    grad_v = sum_of_parts(place + 2 * 64 * BLOCK_D, parts, BLOCK_D)
    kv_row = ((whole + tile) // key_tiles).to(tl.int64)
    batch, head = kv_row // kv_heads, kv_row % kv_heads
    row = (whole + tile) % key_tiles * 128 + half * 64
    store_tile(
        head_pointer(grad_k_ptr, grad_k_strides, batch, head),
        grad_k, row, keys, grad_k_strides[2:], HEAD_DIM, 64, BLOCK_D, WIDE,
    )  # fmt: skip
    store_tile(
        head_pointer(grad_v_ptr, grad_v_strides, batch, head),
        grad_v, row, keys, grad_v_strides[2:], HEAD_DIM, 64, BLOCK_D, WIDE,
    )  # fmt: skip


def launch_parts(parts: Tensor, grad_k: Tensor, grad_v: Tensor, whole: int) -> None:
    """Fill dK and dV of the tiles of keys behind the first `whole`, from parts [tiles, parts, 2, 128, block_d]."""
    _, kv_heads, keys, head_dim = grad_k.shape
    with on_device_of(grad_k):
        parts_kernel[(parts.shape[0] * 2,)](
            parts,
            grad_k,
            grad_v,
            grad_k.stride(),
            grad_v.stride(),
            kv_heads,
            keys,
            triton.cdiv(keys, parts.shape[3]),
            whole,
            parts.shape[1],
            HEAD_DIM=head_dim,
            BLOCK_D=parts.shape[4],
            WIDE=offsets_are_wide(grad_k, grad_v),
            num_warps=8,
        )
