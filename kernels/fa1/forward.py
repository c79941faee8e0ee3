# pyright: reportArgumentType=false, reportCallIssue=false
"""FlashAttention-1, forward. Dao et al. 2022, Algorithm 1.

The paper keeps O in HBM in the inputs' own precision, and so rounds it once for each tile of keys. In
float16 that made the largest error up to 2.3 times eager's after 20 tiles and 6 times after 256, against
0.6 times with O in float32. So here `unfinished` is float32, and the output is rounded once, at the last
visit; with float32 inputs the two are one tensor. m is in base-2 units: scale * log2(e) is folded into it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.fa1.tile_sizes import FORWARD
from kernels.fa1.visits import first_visited, float32_scratch
from kernels.problem import Problem
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    Trace,
    fold_scale,
    head_pointer,
    keys_in_sight,
    load_tile,
    load_vector,
    offsets_are_wide,
    on_device_of,
    queries_of_whole,
    store_tile,
    store_vector,
    tl,
    triton,
    upside_down,
    write_step,
)


@triton.jit
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    output_ptr,
    unfinished_ptr,
    max_ptr,
    sum_ptr,
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
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
    trace=None,
    BROKEN: tl.constexpr = None,
):
    """One program: one head. `unfinished` lies like the output; max, sum and lse as [batch, heads, queries]."""
    # step: One program takes a whole head
    batch_head = tl.program_id(0).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    q_head = head_pointer(q_ptr, q_strides, batch, head)
    k_head = head_pointer(k_ptr, k_strides, batch, head // group)
    v_head = head_pointer(v_ptr, v_strides, batch, head // group)
    output_head = head_pointer(output_ptr, output_strides, batch, head)
    unfinished_head = head_pointer(unfinished_ptr, output_strides, batch, head)
    rows = batch_head * queries
    all_queries = queries_of_whole(queries, keys, trace)
    state_head = unfinished_head, max_ptr + rows, sum_ptr + rows

    for key_start in range(0, keys, BLOCK_K):
        # step: Hold one tile of keys and values
        k = load_tile(
            k_head, key_start, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE
        )
        v = load_tile(
            v_head, key_start, keys, v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE
        )

        # step: Walk past the queries
        first_query = first_visited(key_start, all_queries, keys, BLOCK_Q, CAUSAL)
        # Hoisted out of the loop, what is made from K and V would fill the registers, and they spill.
        for query_start in tl.range(first_query, queries, BLOCK_Q, disable_licm=True):
            q = load_tile(
                q_head, query_start, queries, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE
            )
            if NEGATE:
                q = -q
            first_unseen, _, seen_by_any = keys_in_sight(
                query_start, all_queries, keys, BLOCK_Q, CAUSAL
            )
            state = fetch(
                state_head, query_start, tl.where(key_start == 0, 0, queries),
                output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
            )  # fmt: skip
            MASKED: tl.constexpr = CAUSAL or BROKEN != "tail-not-masked"
            scores, tile = attend(q, k, v, key_start, first_unseen, scale_log2e, MASKED, BROKEN)
            state, rescale = merge(state, tile, BROKEN)
            tl.debug_barrier()  # No thread overwrites what another has yet to read.
            if key_start + BLOCK_K < seen_by_any:
                keep(
                    state_head, state, query_start, queries, output_strides[2:],
                    HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
                )  # fmt: skip
            else:
                finish(
                    output_head, lse_ptr + rows, state, query_start, queries, output_strides[2:],
                    HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
                )  # fmt: skip
            if trace is not None:
                output, running_max, running_sum = state
                step = key_start // BLOCK_K
                write_step(trace, step, scores, running_max, running_sum, rescale, output)
        tl.debug_barrier()  # The next pass may read in one thread what another has written.


# --- what the kernel does, in the order in which it does it -------------------------------------------


@triton.jit
def fetch(
    state_head, query_start, written, strides,
    HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """-> output [BLOCK_Q, BLOCK_D], running maximum and sum [BLOCK_Q]; where nothing is `written`, the start."""
    # step: Fetch what the last pass left
    unfinished_head, max_head, sum_head = state_head
    output = load_tile(
        unfinished_head, query_start, written, strides, HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE
    )
    running_max = load_vector(max_head, query_start, written, -float("inf"), BLOCK_Q)
    running_sum = load_vector(sum_head, query_start, written, 0.0, BLOCK_Q)
    return output, running_max, running_sum


@triton.jit
def attend(
    q, k, v, key_start, first_unseen, scale_log2e,
    MASKED: tl.constexpr = True, BROKEN: tl.constexpr = None,
):  # fmt: skip
    """-> raw scores, and weights V [BLOCK_Q, BLOCK_D], the tile's maximum (base-2 units) and sum.

    Algorithm 1 lines 10 and 12.
    """
    if BROKEN == "log-base":
        scale_log2e = scale_log2e * 0.6931471805599453  # log(2): base e goes into a power of 2
    # step: Take the softmax of this tile alone
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_Q, BLOCK_K]
    if MASKED:
        key = key_start + tl.arange(0, k.shape[0])
        scores = tl.where(key[None, :] < first_unseen[:, None], scores, float("-inf"))
    tile_max = tl.max(scores, 1) * scale_log2e
    if BROKEN == "no-maximum":
        tile_max = tl.zeros_like(tile_max)
    shift = finite_or_zero(tile_max)
    weights = tl.math.exp2(scores * scale_log2e - shift[:, None])
    addition = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return scores, (addition, tile_max, tl.sum(weights, 1))


@triton.jit
def merge(state, tile, BROKEN: tl.constexpr = None):
    """Two softmaxes become one. `output` is divided by its sum, before and after; `addition` is not.

    -> the new state, and the factor on the old output [BLOCK_Q].
    Dao et al. 2022, Algorithm 1 lines 11 and 13.
    """
    # step: Merge it with the softmax so far
    output, running_max, running_sum = state
    addition, tile_max, tile_sum = tile
    new_max = tl.maximum(running_max, tile_max)
    shift = finite_or_zero(new_max)
    # The output so far was divided by its sum: the sum undoes that, or every tile would divide it again.
    weight_before = running_sum * tl.math.exp2(running_max - shift)
    rescale_tile = tl.math.exp2(tile_max - shift)
    if BROKEN == "alpha-upside-down":
        weight_before = running_sum * upside_down(running_max, shift)
    new_sum = weight_before + tile_sum * rescale_tile
    if BROKEN == "sum-not-rescaled":
        new_sum = running_sum + tile_sum * rescale_tile
    if BROKEN == "output-not-rescaled":
        weight_before = running_sum
    if BROKEN == "divided-every-step":
        weight_before = tl.math.exp2(running_max - shift)
    divisor = tl.where(new_sum == 0.0, 1.0, new_sum)  # what has seen nothing stays 0
    rescale = weight_before / divisor
    output = output * rescale[:, None]
    output += addition * (rescale_tile / divisor)[:, None]
    return (output, new_max, new_sum), rescale


@triton.jit
def keep(
    state_head, state, query_start, queries, strides,
    HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The counterpart of `fetch`. Algorithm 1 lines 12 and 13."""
    # step: Put it back into HBM
    unfinished_head, max_head, sum_head = state_head
    output, running_max, running_sum = state
    store_tile(
        unfinished_head, output, query_start, queries, strides, HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE
    )
    store_vector(max_head, running_max, query_start, queries, BLOCK_Q)
    store_vector(sum_head, running_sum, query_start, queries, BLOCK_Q)


@triton.jit
def finish(
    output_head, lse_head, state, query_start, queries, strides,
    HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Round the output once, and fold maximum and sum into one number, the log-sum-exp m + log l."""
    # step: Finish at the last visit
    output, running_max, running_sum = state
    store_tile(output_head, output, query_start, queries, strides, HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE)
    saw_nothing = running_sum == 0.0
    log2_sum_exp = running_max + tl.math.log2(tl.where(saw_nothing, 1.0, running_sum))
    log_sum_exp = log2_sum_exp * 0.6931471805599453  # log(2)
    store_vector(lse_head, log_sum_exp, query_start, queries, BLOCK_Q)


@triton.jit
def finite_or_zero(maximum):
    """0 where nothing is visible: -inf - -inf would be NaN."""
    return tl.where(maximum == float("-inf"), 0.0, maximum)


# --- launch -------------------------------------------------------------------------------------------


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
    unfinished = float32_scratch(output)
    running_max, running_sum, log_sum_exp = (
        q.new_empty(q.shape[:3], dtype=torch.float32) for _ in range(3)
    )
    with on_device_of(q):
        forward_kernel[(problem.batch * problem.heads,)](
            q,
            k,
            v,
            output,
            unfinished,
            running_max,
            running_sum,
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
