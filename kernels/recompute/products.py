# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""w^T P on the GPU, P never stored: what each key receives, summed over the queries.

The loops stand the other way round than in the forward pass: a program keeps a tile of keys and streams
the queries past it, as the backward pass does for dK and dV. Dao 2023, Algorithm 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.recompute.tile_sizes import PRODUCT, query_splits
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    head_pointer,
    load_strided,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    store_vector,
    tl,
    triton,
    weights_from_lse,
)


@triton.jit
def receive(
    sums,
    k,
    q_head,
    lse_head,
    w_head,
    query_start,
    queries,
    first_seeing,
    scale_log2e,
    q_strides,
    lse_stride,
    w_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WEIGHTED: tl.constexpr,
    HIDES: tl.constexpr,
    MASKED: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Add w_i P[i, j] of one query tile. `first_seeing` [BLOCK_K]: the first query that sees each key.

    The sums stay apart, [BLOCK_Q, BLOCK_K], and are added up once at the end: one fused multiply-add an
    element, and no exchange between threads in the loop.
    """
    q = load_tile(q_head, query_start, queries, q_strides, HEAD_DIM, BLOCK_Q, BLOCK_D, MASKED, WIDE)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_Q, BLOCK_K]
    lse = load_strided(
        lse_head, query_start, queries, lse_stride, float("inf"), BLOCK_Q, MASKED, WIDE
    )
    # exp(... - inf) is 0: a query behind the end gives nothing, nor does one that sees nothing.
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    weights = weights_from_lse(scores, lse[:, None], scale_log2e)
    if HIDES:
        query = query_start + tl.arange(0, BLOCK_Q)
        weights = tl.where(query[:, None] >= first_seeing[None, :], weights, 0.0)
    if WEIGHTED:
        w = load_strided(w_head, query_start, queries, w_stride, 0.0, BLOCK_Q, MASKED, WIDE)
        weights *= w.to(tl.float32)[:, None]
    return sums + weights


@triton.jit
def product_kernel(
    w_ptr,
    q_ptr,
    k_ptr,
    lse_ptr,
    partial_ptr,
    w_strides,
    q_strides,
    k_strides,
    lse_strides,
    batches,
    heads,
    group,
    queries,
    keys,
    share,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: one tile of BLOCK_K keys of one head, against one share of the queries.

    Writes partial [shares, batch, heads, keys]; `share`, in queries, is a multiple of BLOCK_Q.
    """
    key_start, row, share_batch, head = place_of_program(keys, heads, BLOCK_K)
    batch = share_batch % batches
    share_start = (share_batch // batches).to(tl.int32) * share
    share_end = tl.minimum(share_start + share, queries)
    q_head = head_pointer(q_ptr, q_strides, batch, head)
    k_head = head_pointer(k_ptr, k_strides, batch, head // group)
    lse_head = head_pointer(lse_ptr, lse_strides, batch, head)
    w_head, w_stride = w_ptr, 0
    if WEIGHTED:
        w_head, w_stride = head_pointer(w_ptr, w_strides, batch, head), w_strides[2]

    k = load_tile(k_head, key_start, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
    first_seeing = key_start + tl.arange(0, BLOCK_K) + queries - keys
    sums = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    seen_from = share_start
    if CAUSAL:
        # Tiles before `some_from` see no key of this tile; from `seen_from` on they see all of them.
        some_from = tl.maximum(key_start + queries - keys, 0) // BLOCK_Q * BLOCK_Q
        some_from = tl.maximum(some_from, share_start)
        all_from = tl.cdiv(tl.maximum(key_start + BLOCK_K - 1 + queries - keys, 0), BLOCK_Q)
        seen_from = tl.maximum(some_from, tl.minimum(all_from * BLOCK_Q, share_end))
        for query_start in range(some_from, seen_from, BLOCK_Q):
            sums = receive(
                sums, k, q_head, lse_head, w_head, query_start, queries, first_seeing, scale_log2e,
                q_strides[2:], lse_strides[2], w_stride, HEAD_DIM, BLOCK_Q, BLOCK_D, WEIGHTED,
                True, True, WIDE,
            )  # fmt: skip
    full_end = tl.maximum(seen_from, share_end // BLOCK_Q * BLOCK_Q)
    for query_start in range(seen_from, full_end, BLOCK_Q):
        sums = receive(
            sums, k, q_head, lse_head, w_head, query_start, queries, first_seeing, scale_log2e,
            q_strides[2:], lse_strides[2], w_stride, HEAD_DIM, BLOCK_Q, BLOCK_D, WEIGHTED,
            False, False, WIDE,
        )  # fmt: skip
    for query_start in range(full_end, share_end, BLOCK_Q):
        sums = receive(
            sums, k, q_head, lse_head, w_head, query_start, queries, first_seeing, scale_log2e,
            q_strides[2:], lse_strides[2], w_stride, HEAD_DIM, BLOCK_Q, BLOCK_D, WEIGHTED,
            False, True, WIDE,
        )  # fmt: skip
    store_vector(partial_ptr + row * keys, tl.sum(sums, 0), key_start, keys, BLOCK_K)


def product(
    w: Tensor | None,
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    scale: float,
    causal: bool,
    splits: int | None = None,
) -> Tensor:
    """sum_i w_i exp(scale * q_i . k_j - lse_i) for all j, [batch, heads, keys]; w None means ones.

    `splits`: shares of the queries; None fills the GPU. The same splits give the same bits.
    """
    batch, heads, queries, head_dim = q.shape
    keys, group = k.shape[2], heads // max(k.shape[1], 1)
    if 0 in (batch, heads, queries, keys):
        return q.new_zeros(batch, heads, keys, dtype=torch.float32)
    block_d = padded(head_dim)
    tiles = pick(PRODUCT, q.device, q.element_size(), block_d)
    query_tiles = triton.cdiv(queries, tiles.block_q)
    programs = triton.cdiv(keys, tiles.block_k) * batch * heads
    wanted = splits or query_splits(q.device, programs, query_tiles)
    share = triton.cdiv(query_tiles, wanted) * tiles.block_q
    shares = triton.cdiv(queries, share)  # none of them is empty
    partial = q.new_empty(shares, batch, heads, keys, dtype=torch.float32)
    vectors = [lse.unsqueeze(-1)] + ([] if w is None else [w.unsqueeze(-1)])
    with on_device_of(q):
        product_kernel[(programs * shares,)](
            w,
            q,
            k,
            lse,
            partial,
            None if w is None else w.stride(),
            q.stride(),
            k.stride(),
            lse.stride(),
            batch,
            heads,
            group,
            queries,
            keys,
            share,
            scale * math.log2(math.e),
            HEAD_DIM=head_dim,
            BLOCK_Q=tiles.block_q,
            BLOCK_K=tiles.block_k,
            BLOCK_D=block_d,
            WEIGHTED=w is not None,
            CAUSAL=causal,
            WIDE=offsets_are_wide(q, k, *vectors),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return partial[0] if shares == 1 else partial.sum(0)
