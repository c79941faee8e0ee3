# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The pass of the backward that owns the keys: dK and dV. Dao 2023, Algorithm 2."""

from __future__ import annotations

import math

from torch import Tensor

from kernels.fa2.tile_sizes import BACKWARD_KEYS
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    head_pointer,
    launch,
    load_tile,
    load_vector,
    load_whole_rows,
    offsets_are_wide,
    place_of_program,
    step_of,
    store_tile,
    tile_offsets,
    tl,
    triton,
    weights_from_lse,
)


@triton.jit
def add_query_tile(
    grads, k, v, q, grad_output, log_sum_exp, delta, last_key, scale_log2e, MASKED: tl.constexpr
):
    """One query tile's share of dK and dV. `last_key` [BLOCK_Q]: the last key of this tile each query sees.

    Everything is computed transposed, [BLOCK_K, BLOCK_Q], so that nothing computed must be turned round.
    """
    grad_k, grad_v = grads
    # step: Rebuild P from the log-sum-exp
    scores = tl.dot(k, tl.trans(q), input_precision="ieee")
    weights = weights_from_lse(scores, log_sum_exp[None, :], scale_log2e)
    if MASKED:
        key = tl.arange(0, k.shape[0])
        weights = tl.where(key[:, None] <= last_key[None, :], weights, 0.0)
    # step: Gradients of K and V
    grad_weights = tl.dot(v, tl.trans(grad_output), input_precision="ieee")
    grad_v = tl.dot(weights.to(q.dtype), grad_output, grad_v, input_precision="ieee")
    grad_scores = weights * (grad_weights - delta[None, :])
    grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision="ieee")
    return grad_k, grad_v


@triton.jit
def walk_masked(
    grads,
    k,
    v,
    q_head,
    grad_output_head,
    lse_row,
    delta_row,
    place,
    first_seeing,
    queries,
    q_strides,
    grad_output_strides,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A query tile that may reach past the last query, or (MASKED) past what its queries may see.

    Queries behind the end come as zeros with log-sum-exp +inf, which gives them weight 0.
    `first_seeing`: the first query that sees the first key of the tile.
    """
    q = load_tile(q_head, place, queries, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE)
    grad_output = load_tile(
        grad_output_head, place, queries, grad_output_strides[2:],
        HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    log_sum_exp = load_vector(lse_row, place, queries, float("inf"), BLOCK_Q)
    delta = load_vector(delta_row, place, queries, 0.0, BLOCK_Q)
    last_key = place + tl.arange(0, BLOCK_Q) - first_seeing
    return add_query_tile(
        grads, k, v, q, grad_output, log_sum_exp, delta, last_key, scale_log2e, MASKED
    )


@triton.jit(do_not_specialize=["kv_heads", "keys"])
def keys_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_output_ptr,
    lse_ptr,
    delta_ptr,
    grad_k_ptr,
    grad_v_ptr,
    q_strides,
    k_strides,
    v_strides,
    grad_output_strides,
    grad_k_strides,
    grad_v_strides,
    kv_heads,
    group,
    queries,
    keys,
    scale,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: dK and dV of one tile of BLOCK_K keys, from all queries of the heads that share it."""
    start, _, batch, kv_head = place_of_program(keys, kv_heads, BLOCK_K)
    k = load_tile(
        head_pointer(k_ptr, k_strides, batch, kv_head),
        start, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE,
    )  # fmt: skip
    v = load_tile(
        head_pointer(v_ptr, v_strides, batch, kv_head),
        start, keys, v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE,
    )  # fmt: skip
    # Queries before `first` see nothing of this tile; from `all_see` on each sees all of it.
    first, all_see = 0, 0
    if CAUSAL:
        first = tl.maximum(0, start + queries - keys) // BLOCK_Q * BLOCK_Q
        all_see = tl.cdiv(tl.maximum(0, start + BLOCK_K - 1 + queries - keys), BLOCK_Q) * BLOCK_Q
    q_offsets = tile_offsets(q_strides[2:], BLOCK_Q, BLOCK_D, WIDE)
    grad_output_offsets = tile_offsets(grad_output_strides[2:], BLOCK_Q, BLOCK_D, WIDE)
    whole_end = queries // BLOCK_Q * BLOCK_Q
    at_edge = (tl.minimum(all_see, whole_end) - first) // BLOCK_Q  # tiles that see this one in part
    at_end = tl.where(whole_end < queries, 1, 0)  # and one that reaches past the last query
    grads = (tl.zeros([BLOCK_K, BLOCK_D], tl.float32), tl.zeros([BLOCK_K, BLOCK_D], tl.float32))

    # step: Walk the queries for one key tile
    for member in range(group):
        head = kv_head * group + member
        q_head = head_pointer(q_ptr, q_strides, batch, head)
        grad_output_head = head_pointer(grad_output_ptr, grad_output_strides, batch, head)
        row = (batch * kv_heads * group + head) * queries
        # Hoisted out of this loop, what its masks are made from would fill the registers, and they spill.
        for visit in tl.range(0, at_edge + at_end, disable_licm=True):
            place = tl.where(visit < at_edge, first + visit * BLOCK_Q, whole_end)
            grads = walk_masked(
                grads, k, v, q_head, grad_output_head, lse_ptr + row, delta_ptr + row, place,
                start + queries - keys, queries, q_strides, grad_output_strides, scale_log2e,
                HEAD_DIM, BLOCK_Q, BLOCK_D, CAUSAL, WIDE,
            )  # fmt: skip
        q_tile = q_head + all_see * tl.cast(q_strides[2], tl.int64)
        grad_output_tile = grad_output_head + all_see * tl.cast(grad_output_strides[2], tl.int64)
        for place in range(all_see, whole_end, BLOCK_Q):
            q = load_whole_rows(q_tile, q_offsets, HEAD_DIM, BLOCK_D)
            grad_output = load_whole_rows(grad_output_tile, grad_output_offsets, HEAD_DIM, BLOCK_D)
            query = place + tl.arange(0, BLOCK_Q)
            log_sum_exp = tl.load(lse_ptr + row + query)
            delta = tl.load(delta_ptr + row + query)
            grads = add_query_tile(
                grads, k, v, q, grad_output, log_sum_exp, delta, query, scale_log2e, False
            )
            q_tile += step_of(q_strides[2:], BLOCK_Q)
            grad_output_tile += step_of(grad_output_strides[2:], BLOCK_Q)
    grad_k, grad_v = grads
    store_tile(
        head_pointer(grad_k_ptr, grad_k_strides, batch, kv_head), grad_k * scale,
        start, keys, grad_k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, WIDE,
    )  # fmt: skip
    store_tile(
        head_pointer(grad_v_ptr, grad_v_strides, batch, kv_head), grad_v,
        start, keys, grad_v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, WIDE,
    )  # fmt: skip


def launch_keys(
    saved: Saved, grad_output: Tensor, delta: Tensor, grad_k: Tensor, grad_v: Tensor
) -> None:
    """Fill grad_k and grad_v."""
    problem, q, k, v = Problem.of(saved.q, saved.k), saved.q, saved.k, saved.v
    block_d = padded(problem.head_dim)
    tiles = pick(BACKWARD_KEYS, q.device, q.element_size(), problem.head_dim)
    kv_heads = k.shape[1]
    launch(
        keys_kernel,
        triton.cdiv(problem.keys, tiles.block_k) * problem.batch * kv_heads,
        q,
        k,
        v,
        grad_output,
        saved.log_sum_exp,
        delta,
        grad_k,
        grad_v,
        q.stride(),
        k.stride(),
        v.stride(),
        grad_output.stride(),
        grad_k.stride(),
        grad_v.stride(),
        kv_heads,
        problem.group,
        problem.queries,
        problem.keys,
        saved.scale,
        saved.scale * math.log2(math.e),
        HEAD_DIM=problem.head_dim,
        BLOCK_Q=tiles.block_q,
        BLOCK_K=tiles.block_k,
        BLOCK_D=block_d,
        CAUSAL=saved.causal,
        WIDE=offsets_are_wide(q, k, v, grad_output, grad_k, grad_v),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
