# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention over few keys in plain Triton: one program, one tile of queries against all keys at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.problem import Problem
from kernels.tile_sizes import padded
from kernels.tiles import (
    fold_scale,
    head_pointer,
    keys_in_sight,
    launch,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    store_tile,
    store_vector,
    tl,
    triton,
)


@dataclass(frozen=True)
class ShortTiles:
    """Queries of one tile, the widths that its keys are cut into, and the warps that share it."""

    block_q: int
    pieces: tuple[int, ...]  # powers of two; their sum covers the keys
    warps: int


@triton.constexpr_function
def first_of(pieces, index):
    """The first key of a piece."""
    return sum(pieces[:index])


@triton.constexpr_function
def is_last(pieces, index):
    """Only the last piece reaches past the keys."""
    return index == len(pieces) - 1


@triton.jit
def load_pieces(
    base,
    rows,
    strides,
    HEAD_DIM: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDE: tl.constexpr,
):
    """All rows of one head, cut into pieces. -> a tuple of [piece, BLOCK_D]"""
    pieces = ()
    for i in tl.static_range(len(PIECES)):
        piece = load_tile(
            base, first_of(PIECES, i), rows, strides,
            HEAD_DIM, PIECES[i], BLOCK_D, is_last(PIECES, i), WIDE,
        )  # fmt: skip
        pieces += (piece,)
    return pieces


@triton.jit
def score(q, k_pieces, first_unseen, CAUSAL: tl.constexpr, PIECES: tl.constexpr):
    """-> the raw scores of each piece [BLOCK_Q, piece], and the highest of each query [BLOCK_Q]."""
    scores = ()
    top = tl.full([q.shape[0]], float("-inf"), tl.float32)
    for i in tl.static_range(len(PIECES)):
        piece = tl.dot(q, tl.trans(k_pieces[i]), input_precision="ieee")
        if CAUSAL or is_last(PIECES, i):
            key = first_of(PIECES, i) + tl.arange(0, PIECES[i])
            piece = tl.where(key[None, :] < first_unseen[:, None], piece, float("-inf"))
        top = tl.maximum(top, tl.max(piece, 1))
        scores += (piece,)
    return scores, top


@triton.jit
def weigh(scores, v_pieces, shift, scale_log2e, BLOCK_D: tl.constexpr, PIECES: tl.constexpr):
    """-> sum of weights times V [BLOCK_Q, BLOCK_D], and the sum of the weights [BLOCK_Q]."""
    output = tl.zeros([shift.shape[0], BLOCK_D], tl.float32)
    total = tl.zeros([shift.shape[0]], tl.float32)
    for i in tl.static_range(len(PIECES)):
        weights = tl.math.exp2(scores[i] * scale_log2e - shift[:, None])
        total += tl.sum(weights, 1)
        output = tl.dot(weights.to(v_pieces[i].dtype), v_pieces[i], output, input_precision="ieee")
    return output, total


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def short_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    output_ptr,
    lse_ptr,
    q_strides,
    k_strides,
    v_strides,
    output_strides,
    heads,
    group,
    queries,
    keys,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: one tile of BLOCK_Q queries of one head, against all keys in one piece of work."""
    query_start, batch_head, batch, head = place_of_program(queries, heads, BLOCK_Q)
    q_head = head_pointer(q_ptr, q_strides, batch, head)
    k_head = head_pointer(k_ptr, k_strides, batch, head // group)
    v_head = head_pointer(v_ptr, v_strides, batch, head // group)
    q = load_tile(
        q_head, query_start, queries, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE
    )
    if NEGATE:
        q = -q
    # All loads set out before the first product: nothing is waited for twice.
    k_pieces = load_pieces(k_head, keys, k_strides[2:], HEAD_DIM, PIECES, BLOCK_D, WIDE)
    v_pieces = load_pieces(v_head, keys, v_strides[2:], HEAD_DIM, PIECES, BLOCK_D, WIDE)
    first_unseen, _, _ = keys_in_sight(query_start, queries, keys, BLOCK_Q, CAUSAL)

    # step: Short pictures in one piece
    scores, top = score(q, k_pieces, first_unseen, CAUSAL, PIECES)
    top *= scale_log2e
    # A query that sees nothing stays at -inf, and -inf - -inf would be NaN.
    shift = tl.where(top == float("-inf"), 0.0, top) if CAUSAL else top
    output, total = weigh(scores, v_pieces, shift, scale_log2e, BLOCK_D, PIECES)

    # Its sum is 0: its output is 0 and its log-sum-exp -inf.
    saw_nothing = total == 0.0
    total = tl.where(saw_nothing, 1.0, total)
    output_head = head_pointer(output_ptr, output_strides, batch, head)
    store_tile(
        output_head, output * (1.0 / total)[:, None], query_start, queries, output_strides[2:],
        HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
    )  # fmt: skip
    log2_sum_exp = tl.where(saw_nothing, float("-inf"), top + tl.math.log2(total))
    log_sum_exp = log2_sum_exp * 0.6931471805599453  # log(2)
    store_vector(lse_ptr + batch_head * queries, log_sum_exp, query_start, queries, BLOCK_Q)


def launch_tiles(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, tiles: ShortTiles
) -> tuple[Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp [batch, heads, queries]."""
    problem = Problem.of(q, k, causal)
    q, scale_log2e, negate = fold_scale(q, scale)
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    programs = triton.cdiv(problem.queries, tiles.block_q) * problem.batch * problem.heads
    with on_device_of(q):
        launch(
            short_kernel,
            programs,
            q,
            k,
            v,
            output,
            log_sum_exp,
            q.stride(),
            k.stride(),
            v.stride(),
            output.stride(),
            problem.heads,
            problem.group,
            problem.queries,
            problem.keys,
            scale_log2e,
            HEAD_DIM=problem.head_dim,
            BLOCK_Q=tiles.block_q,
            PIECES=tiles.pieces,
            BLOCK_D=padded(problem.head_dim),
            CAUSAL=causal,
            NEGATE=negate,
            WIDE=offsets_are_wide(q, k, v, output),
            num_warps=tiles.warps,
            num_stages=1,
        )
    return output, log_sum_exp
