# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The plain Triton twin of fa3's forward pass: the same tiles in the same order, without its timing.

fa3 is written in Gluon, which only a Hopper GPU runs. The twin does the same arithmetic and asks memory for the
same bytes, in Triton's interpreter too, so that walks, counts and tests on any machine are the twin's. What it
leaves out is who works when: no roles of warps, no TMA, no two warpgroups that take turns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.problem import Problem
from kernels.tile_sizes import CHOSEN, Tiles, padded
from kernels.tiles import (
    Trace,
    fold_scale,
    head_pointer,
    keys_in_sight,
    load_tile,
    offsets_are_wide,
    on_device_of,
    online_softmax_update,
    place_of_program,
    queries_of_whole,
    store_tile,
    store_vector,
    tl,
    triton,
    write_step,
)

MOST_RISE = 13.0
"""As in `forward_again`: powers of two that weights may become large before a row's maximum is renewed."""


@triton.jit
def attend(
    state,
    q,
    k,
    v,
    keys_seen,
    scale_log2e,
    MASKED: tl.constexpr,
    MOST_RISE: tl.constexpr,
    trace=None,
    step=0,
    BROKEN: tl.constexpr = None,
):
    """Let a query tile see a key tile. `keys_seen` [BLOCK_Q]: how many keys of this tile each query sees."""
    accumulator, running_max, running_sum = state
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_Q, BLOCK_K]
    if MASKED:
        place = tl.arange(0, k.shape[0])
        scores = tl.where(place[None, :] < keys_seen[:, None], scores, float("-inf"))
    # step: Weigh this tile against the maximum so far
    if MOST_RISE == 0:
        weights, running_max, running_sum, rescale = online_softmax_update(
            scores, running_max, running_sum, scale_log2e, MASKED, BROKEN
        )
    else:
        weights, running_max, running_sum, rescale = update_seldom(
            scores, running_max, running_sum, scale_log2e, MOST_RISE
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


@triton.jit
def update_seldom(scores, running_max, running_sum, scale_log2e, MOST_RISE: tl.constexpr):
    """As `online_softmax_update`, but a row's maximum stays while its weights against the old one are not large.

    They are summed in four parts, as a row lies in four threads of the GPU; where a part reaches 2^MOST_RISE, the
    maximum of this tile is taken. What all weights of a row are measured against cancels in the division, so the
    result is the same up to rounding; nothing is then rescaled.
    """
    weights = tl.math.exp2(scores * scale_log2e - running_max[:, None])
    parts = tl.reshape(weights, [scores.shape[0], scores.shape[1] // 8, 4, 2])
    small = tl.sum(tl.sum(parts, 3), 1) < 2.0**MOST_RISE
    tile_max = tl.max(scores, 1) * scale_log2e
    again = tl.min(small.to(tl.int32), 1) == 0
    new_max = tl.where(again, tl.maximum(tile_max, running_max), running_max)
    weights = tl.math.exp2(scores * scale_log2e - new_max[:, None])
    rescale = tl.math.exp2(running_max - new_max)
    return weights, new_max, running_sum * rescale + tl.sum(weights, 1), rescale


@triton.jit
def walk_keys(
    q,
    k_head,
    v_head,
    k_strides,
    v_strides,
    first_unseen,
    first_tile,
    whole_tiles,
    end_tile,
    keys,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
    MOST_RISE: tl.constexpr,
    trace=None,
    BROKEN: tl.constexpr = None,
):
    """Let queries see the key tiles end_tile - 1 ... first_tile; of these, from `whole_tiles` on a mask is needed.

    Those few are rescaled as ever, whatever MOST_RISE says.
    -> what was added up [BLOCK_Q, BLOCK_D], the maximum and the sum of each query
    """
    state = (
        tl.zeros([q.shape[0], BLOCK_D], tl.float32),
        tl.full([q.shape[0]], float("-inf"), tl.float32),
        tl.zeros([q.shape[0]], tl.float32),
    )
    # step: Take the last keys first
    masked = end_tile - tl.minimum(end_tile, tl.maximum(first_tile, whole_tiles))
    for step in range(0, masked):  # where keys end or a diagonal runs
        start = (end_tile - 1 - step) * BLOCK_K
        k = load_tile(k_head, start, keys, k_strides, HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
        v = load_tile(v_head, start, keys, v_strides, HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
        state = attend(
            state, q, k, v, first_unseen - start, scale_log2e,
            CAUSAL or BROKEN != "tail-not-masked", 0, trace, step, BROKEN,
        )  # fmt: skip
    for step in range(masked, end_tile - first_tile):  # no mask from here on
        start = (end_tile - 1 - step) * BLOCK_K
        k = load_tile(k_head, start, keys, k_strides, HEAD_DIM, BLOCK_K, BLOCK_D, False, WIDE)
        v = load_tile(v_head, start, keys, v_strides, HEAD_DIM, BLOCK_K, BLOCK_D, False, WIDE)
        state = attend(
            state, q, k, v, first_unseen, scale_log2e, False, MOST_RISE, trace, step, BROKEN
        )
    return state


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
    ROWS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
    MOST_RISE: tl.constexpr,
    trace=None,
    BROKEN: tl.constexpr = None,
):
    """One program: ROWS queries of one head against all keys that they may see, the last key first.

    BLOCK_Q is ROWS or the next power of two, which plain Triton wants; rows behind ROWS stay empty.
    """
    query_start, batch_head, batch, head = place_of_program(queries, heads, ROWS, CAUSAL)
    query_end = tl.minimum(queries, query_start + ROWS)
    q_head = head_pointer(q_ptr, q_strides, batch, head)
    k_head = head_pointer(k_ptr, k_strides, batch, head // group)
    v_head = head_pointer(v_ptr, v_strides, batch, head // group)
    q = load_tile(
        q_head, query_start, query_end, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE
    )
    if NEGATE:
        q = -q
    whole_queries = queries_of_whole(queries, keys, trace)
    first_unseen, seen_by_all, seen_by_any = keys_in_sight(
        query_start, whole_queries, keys, BLOCK_Q, CAUSAL
    )
    if CAUSAL:
        seen_by_any = tl.minimum(keys, query_start + ROWS + keys - whole_queries)
    tiles = tl.cdiv(tl.maximum(seen_by_any, 0), BLOCK_K)
    accumulator, running_max, running_sum = walk_keys(
        q, k_head, v_head, k_strides[2:], v_strides[2:], first_unseen, 0, seen_by_all // BLOCK_K, tiles,
        keys, scale_log2e, HEAD_DIM, BLOCK_K, BLOCK_D, CAUSAL, WIDE, MOST_RISE, trace, BROKEN,
    )  # fmt: skip

    # step: Divide once
    # A query that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
    saw_nothing = running_sum == 0.0
    running_sum = tl.where(saw_nothing, 1.0, running_sum)
    output_head = head_pointer(output_ptr, output_strides, batch, head)
    if BROKEN != "divided-every-step":
        accumulator = accumulator / running_sum[:, None]
    store_tile(
        output_head, accumulator, query_start, query_end, output_strides[2:],
        HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
    )  # fmt: skip
    log2_sum_exp = tl.where(saw_nothing, float("-inf"), running_max + tl.math.log2(running_sum))
    log_sum_exp = log2_sum_exp * 0.6931471805599453  # log(2)
    store_vector(lse_ptr + batch_head * queries, log_sum_exp, query_start, query_end, BLOCK_Q)


def launch_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    trace: Trace = None,
    broken: str | None = None,
    most_rise: float = MOST_RISE,
) -> tuple[Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp [batch, heads, queries].

    most_rise: as MOST_RISE; 0 renews every maximum in every step.
    For `kernels.trace`, with one tile of queries of one head: where to write every step, and what to leave out.
    """
    problem = Problem.of(q, k, causal)
    q, scale_log2e, negate = fold_scale(q, scale)
    tiles = CHOSEN.get() or Tiles(64, 64, 4, 1)
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    programs = triton.cdiv(problem.queries, tiles.block_q) * problem.batch * problem.heads
    with on_device_of(q):
        forward_kernel[(programs,)](
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
            ROWS=tiles.block_q,
            BLOCK_Q=padded(tiles.block_q),
            BLOCK_K=tiles.block_k,
            BLOCK_D=padded(problem.head_dim),
            CAUSAL=causal,
            NEGATE=negate,
            WIDE=offsets_are_wide(q, k, v, output),
            MOST_RISE=most_rise,
            trace=trace,
            BROKEN=broken,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return output, log_sum_exp
