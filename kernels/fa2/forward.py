# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""FlashAttention-2, forward. Dao 2023, Algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.fa2.tile_sizes import FORWARD
from kernels.problem import Problem
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    Trace,
    fold_scale,
    head_pointer,
    keys_in_sight,
    launch,
    load_tile,
    load_whole_rows,
    offsets_are_wide,
    on_device_of,
    online_softmax_update,
    place_of_program,
    queries_of_whole,
    step_of,
    store_tile,
    store_vector,
    tile_offsets,
    tl,
    triton,
    write_step,
)


@triton.jit
def attend(
    state,
    q,
    k,
    v,
    keys_seen,
    scale_log2e,
    MASKED: tl.constexpr,
    trace=None,
    step=0,
    BROKEN: tl.constexpr = None,
):
    """Let a query tile see a key tile. `keys_seen` [BLOCK_Q]: how many keys of this tile each query sees."""
    accumulator, running_max, running_sum = state
    # step: Score the tile
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_Q, BLOCK_K]
    if MASKED:
        place = tl.arange(0, k.shape[0])
        scores = tl.where(place[None, :] < keys_seen[:, None], scores, float("-inf"))
    # step: Update the running maximum and sum
    weights, running_max, running_sum, rescale = online_softmax_update(
        scores, running_max, running_sum, scale_log2e, MASKED, BROKEN
    )
    # step: Rescale, then add
    if BROKEN != "output-not-rescaled":
        accumulator = accumulator * rescale[:, None]
    accumulator = tl.dot(weights.to(v.dtype), v, accumulator, input_precision="ieee")
    if BROKEN == "divided-every-step":
        accumulator = accumulator / running_sum[:, None]
    if trace is not None:
        write_step(trace, step, scores, running_max, running_sum, rescale, accumulator)
    return accumulator, running_max, running_sum


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def forward_kernel(
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
    BLOCK_K: tl.constexpr,
    TAIL_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
    trace=None,
    BROKEN: tl.constexpr = None,
):
    """One program: one tile of BLOCK_Q queries of one head, against all keys that it may see."""
    query_start, batch_head, batch, head = place_of_program(queries, heads, BLOCK_Q, CAUSAL)
    q_head = head_pointer(q_ptr, q_strides, batch, head)
    k_head = head_pointer(k_ptr, k_strides, batch, head // group)
    v_head = head_pointer(v_ptr, v_strides, batch, head // group)

    # step: Take a tile of queries
    q = load_tile(
        q_head, query_start, queries, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE
    )
    if NEGATE:
        q = -q
    first_unseen, seen_by_all, seen_by_any = keys_in_sight(
        query_start, queries_of_whole(queries, keys, trace), keys, BLOCK_Q, CAUSAL
    )
    unmasked_end = seen_by_all // BLOCK_K * BLOCK_K
    state = (
        tl.zeros([BLOCK_Q, BLOCK_D], tl.float32),
        tl.full([BLOCK_Q], float("-inf"), tl.float32),
        tl.zeros([BLOCK_Q], tl.float32),
    )

    # step: Stream the keys past
    k_offsets = tile_offsets(k_strides[2:], BLOCK_K, BLOCK_D, WIDE)
    v_offsets = tile_offsets(v_strides[2:], BLOCK_K, BLOCK_D, WIDE)
    k_tile, v_tile = k_head, v_head
    for start in range(0, unmasked_end, BLOCK_K):
        k = load_whole_rows(k_tile, k_offsets, HEAD_DIM, BLOCK_D)
        v = load_whole_rows(v_tile, v_offsets, HEAD_DIM, BLOCK_D)
        state = attend(
            state, q, k, v, first_unseen, scale_log2e, False, trace, start // BLOCK_K, BROKEN
        )
        k_tile += step_of(k_strides[2:], BLOCK_K)
        v_tile += step_of(v_strides[2:], BLOCK_K)
    if CAUSAL:
        for start in range(unmasked_end, seen_by_any, BLOCK_K):
            k = load_tile(
                k_head, start, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE
            )
            v = load_tile(
                v_head, start, keys, v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE
            )
            state = attend(
                state, q, k, v, first_unseen - start, scale_log2e, True,
                trace, start // BLOCK_K, BROKEN,
            )  # fmt: skip
    elif unmasked_end < keys:
        start = unmasked_end
        k = load_tile(k_head, start, keys, k_strides[2:], HEAD_DIM, TAIL_K, BLOCK_D, True, WIDE)
        v = load_tile(v_head, start, keys, v_strides[2:], HEAD_DIM, TAIL_K, BLOCK_D, True, WIDE)
        state = attend(
            state, q, k, v, first_unseen - start, scale_log2e, BROKEN != "tail-not-masked",
            trace, start // BLOCK_K, BROKEN,
        )  # fmt: skip
    accumulator, running_max, running_sum = state

    # step: Divide once
    # A query that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
    saw_nothing = running_sum == 0.0
    running_sum = tl.where(saw_nothing, 1.0, running_sum)
    output_head = head_pointer(output_ptr, output_strides, batch, head)
    if BROKEN != "divided-every-step":
        accumulator = accumulator / running_sum[:, None]
    store_tile(
        output_head, accumulator, query_start, queries, output_strides[2:],
        HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
    )  # fmt: skip

    # step: Save the log-sum-exp
    log2_sum_exp = tl.where(saw_nothing, float("-inf"), running_max + tl.math.log2(running_sum))
    log_sum_exp = log2_sum_exp * 0.6931471805599453  # log(2)
    store_vector(lse_ptr + batch_head * queries, log_sum_exp, query_start, queries, BLOCK_Q)


def launch_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    trace: Trace = None,
    broken: str | None = None,
) -> tuple[Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp [batch, heads, queries].

    For `kernels.trace`, with one tile of queries of one head: where to write every step, and what to leave out.
    """
    problem = Problem.of(q, k, causal)
    q, scale_log2e, negate = fold_scale(q, scale)
    block_d = padded(problem.head_dim)
    tiles = pick(FORWARD, q.device, q.element_size(), problem.head_dim)
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    programs = triton.cdiv(problem.queries, tiles.block_q) * problem.batch * problem.heads
    with on_device_of(q):
        launch(
            forward_kernel,
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
            BLOCK_K=tiles.block_k,
            TAIL_K=min(tiles.block_k, padded(problem.keys % tiles.block_k)),
            BLOCK_D=block_d,
            CAUSAL=causal,
            NEGATE=negate,
            WIDE=offsets_are_wide(q, k, v, output),
            trace=trace,
            BROKEN=broken,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return output, log_sum_exp
