# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The pass of the backward that owns the queries: dQ. Dao 2023, Algorithm 2."""

from __future__ import annotations

import math

from torch import Tensor

from kernels.fa2.tile_sizes import BACKWARD_QUERIES
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    Trace,
    head_pointer,
    keys_in_sight,
    launch,
    load_tile,
    load_vector,
    load_whole_rows,
    offsets_are_wide,
    place_of_program,
    queries_of_whole,
    step_of,
    store_tile,
    tile_offsets,
    tl,
    triton,
    weights_from_lse,
    write_columns,
)


@triton.jit
def add_key_tile(
    grad_q,
    q,
    k,
    v,
    grad_output,
    log_sum_exp,
    delta,
    keys_seen,
    scale_log2e,
    MASKED: tl.constexpr,
    trace=None,
    step=0,
):
    """One key tile's share of dQ. `keys_seen` [BLOCK_Q]: how many keys of this tile each query sees."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_Q, BLOCK_K]
    grad_weights = tl.dot(grad_output, tl.trans(v), input_precision="ieee")
    weights = weights_from_lse(scores, log_sum_exp[:, None], scale_log2e)
    if MASKED:
        key = tl.arange(0, k.shape[0])
        weights = tl.where(key[None, :] < keys_seen[:, None], weights, 0.0)
    # step: Gradient of Q
    grad_scores = weights * (grad_weights - delta[:, None])
    grad_q = tl.dot(grad_scores.to(k.dtype), k, grad_q, input_precision="ieee")
    if trace is not None:
        if MASKED:
            scores = tl.where(key[None, :] < keys_seen[:, None], scores, float("-inf"))
        write_columns(trace, step, 0, scores)
        write_columns(trace, step, k.shape[0], weights)
        write_columns(trace, step, 2 * k.shape[0], grad_weights)
        write_columns(trace, step, 3 * k.shape[0], grad_q)
    return grad_q


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def queries_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_output_ptr,
    lse_ptr,
    delta_ptr,
    grad_q_ptr,
    q_strides,
    k_strides,
    v_strides,
    grad_output_strides,
    grad_q_strides,
    heads,
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
    trace=None,
):
    """One program: dQ of one tile of BLOCK_Q queries of one head, from all keys that it sees."""
    query_start, batch_head, batch, head = place_of_program(queries, heads, BLOCK_Q, CAUSAL)
    k_head = head_pointer(k_ptr, k_strides, batch, head // group)
    v_head = head_pointer(v_ptr, v_strides, batch, head // group)
    q = load_tile(
        head_pointer(q_ptr, q_strides, batch, head),
        query_start, queries, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    grad_output = load_tile(
        head_pointer(grad_output_ptr, grad_output_strides, batch, head),
        query_start, queries, grad_output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    row = batch_head * queries
    log_sum_exp = load_vector(lse_ptr + row, query_start, queries, float("inf"), BLOCK_Q)
    delta = load_vector(delta_ptr + row, query_start, queries, 0.0, BLOCK_Q)
    first_unseen, seen_by_all, seen_by_any = keys_in_sight(
        query_start, queries_of_whole(queries, keys, trace), keys, BLOCK_Q, CAUSAL
    )
    unmasked_end = seen_by_all // BLOCK_K * BLOCK_K
    grad_q = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)

    # step: Walk the keys for one query tile
    k_offsets = tile_offsets(k_strides[2:], BLOCK_K, BLOCK_D, WIDE)
    v_offsets = tile_offsets(v_strides[2:], BLOCK_K, BLOCK_D, WIDE)
    k_tile, v_tile = k_head, v_head
    for start in range(0, unmasked_end, BLOCK_K):
        k = load_whole_rows(k_tile, k_offsets, HEAD_DIM, BLOCK_D)
        v = load_whole_rows(v_tile, v_offsets, HEAD_DIM, BLOCK_D)
        grad_q = add_key_tile(
            grad_q, q, k, v, grad_output, log_sum_exp, delta, first_unseen, scale_log2e, False,
            trace, start // BLOCK_K,
        )  # fmt: skip
        k_tile += step_of(k_strides[2:], BLOCK_K)
        v_tile += step_of(v_strides[2:], BLOCK_K)
    for start in range(unmasked_end, seen_by_any, BLOCK_K):
        k = load_tile(k_head, start, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
        v = load_tile(v_head, start, keys, v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
        grad_q = add_key_tile(
            grad_q, q, k, v, grad_output, log_sum_exp, delta, first_unseen - start, scale_log2e, True,
            trace, start // BLOCK_K,
        )  # fmt: skip
    store_tile(
        head_pointer(grad_q_ptr, grad_q_strides, batch, head), grad_q * scale,
        query_start, queries, grad_q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
    )  # fmt: skip


def launch_queries(
    saved: Saved, grad_output: Tensor, delta: Tensor, grad_q: Tensor, trace: Trace = None
) -> None:
    """Fill grad_q. For `kernels.trace`, with one tile of queries of one head: where to write every step."""
    problem, q, k, v = Problem.of(saved.q, saved.k), saved.q, saved.k, saved.v
    block_d = padded(problem.head_dim)
    tiles = pick(BACKWARD_QUERIES, q.device, q.element_size(), block_d)
    programs = triton.cdiv(problem.queries, tiles.block_q) * problem.batch * problem.heads
    launch(
        queries_kernel,
        programs,
        q,
        k,
        v,
        grad_output,
        saved.log_sum_exp,
        delta,
        grad_q,
        q.stride(),
        k.stride(),
        v.stride(),
        grad_output.stride(),
        grad_q.stride(),
        problem.heads,
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
        WIDE=offsets_are_wide(q, k, v, grad_output, grad_q),
        trace=trace,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
