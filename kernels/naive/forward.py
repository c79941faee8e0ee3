# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention as textbooks write it, forward. Dao et al. 2022, Algorithm 0."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.naive import empty_kept
from kernels.naive.products import block_pointers, pairs, sums
from kernels.naive.tile_sizes import softmax_tiles
from kernels.tiles import (
    Trace,
    offsets_are_wide,
    on_device_of,
    online_softmax_update,
    store_vector,
    tl,
    triton,
    write_columns,
)


@triton.jit
def softmax_kernel(
    matrix_ptr,
    lse_ptr,
    rows,
    columns,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    trace=None,
    BROKEN: tl.constexpr = None,
):
    """One program: BLOCK_Q rows of S become rows of P in the same place; columns -inf count for nothing.

    A row that fits into BLOCK_K is read once. A longer one is read twice: for its maximum and its sum, and
    again to divide by the sum, which mostly finds it in L2.
    """
    row_start = tl.program_id(0) * BLOCK_Q
    strides = (columns, 1)
    running_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    running_sum = tl.zeros([BLOCK_Q], tl.float32)
    weights = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    for key_start in range(0, columns, BLOCK_K):
        place, inside = block_pointers(
            matrix_ptr, row_start, rows, key_start, columns, strides, BLOCK_Q, BLOCK_K, WIDE
        )
        scores = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
        weights, running_max, running_sum, _ = online_softmax_update(
            scores, running_max, running_sum, 1.4426950408889634, True, BROKEN
        )

    # A row that sees nothing has sum 0: its probabilities are 0 and its log-sum-exp -inf.
    saw_nothing = running_sum == 0.0
    total = tl.where(saw_nothing, 1.0, running_sum)
    shift = tl.where(saw_nothing, 0.0, running_max)[:, None]
    log2_sum_exp = tl.where(saw_nothing, float("-inf"), running_max + tl.math.log2(total))
    log_sum_exp = log2_sum_exp * 0.6931471805599453  # log(2)
    store_vector(lse_ptr, log_sum_exp, row_start, rows, BLOCK_Q)
    for key_start in range(0, columns, BLOCK_K):
        place, inside = block_pointers(
            matrix_ptr, row_start, rows, key_start, columns, strides, BLOCK_Q, BLOCK_K, WIDE
        )
        if not ONE_BLOCK:
            scores = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
            if BROKEN == "log-base":
                weights = tl.math.exp2(scores - shift)
            else:
                weights = tl.math.exp2(scores * 1.4426950408889634 - shift)
        tl.store(place, (weights / total[:, None]).to(matrix_ptr.dtype.element_ty), mask=inside)
    if trace is not None:
        write_columns(trace, tl.program_id(0), 0, running_max[:, None])
        write_columns(trace, tl.program_id(0), 1, running_sum[:, None])


def softmax_in_place(
    scores: Tensor, log_sum_exp: Tensor, trace: Trace = None, broken: str | None = None
) -> None:
    """Rows of S, contiguous, become rows of P; their log-sum-exp goes into log_sum_exp, contiguous."""
    rows, columns = log_sum_exp.numel(), scores.shape[3]
    tiles = softmax_tiles(columns)
    with on_device_of(scores):
        softmax_kernel[(triton.cdiv(rows, tiles.block_q),)](
            scores,
            log_sum_exp,
            rows,
            columns,
            BLOCK_Q=tiles.block_q,
            BLOCK_K=tiles.block_k,
            ONE_BLOCK=columns <= tiles.block_k,
            WIDE=offsets_are_wide(scores),
            trace=trace,
            BROKEN=broken,
            num_warps=tiles.warps,
        )


def launch_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    traces: tuple[Trace, Trace, Trace] = (None, None, None),
    broken: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp, P as `empty_kept` says.

    S is stored in the inputs' own dtype, as eager torch stores it, and P is written over it: one N x N
    matrix is all that is needed at a time. For `kernels.trace`, with one tile of queries of one head: where each
    kernel writes its steps, and what is left out.
    """
    matrix = empty_kept(q, k)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)

    # step: Compare every query with every key
    hide = causal or broken != "tail-not-masked"
    pairs(q, k, out=matrix, factor=scale, hide=hide, causal=causal, trace=traces[0])

    # step: Turn each row into probabilities
    softmax_in_place(matrix, log_sum_exp, traces[1], broken)

    # step: Mix the values
    sums(matrix, v, out=output, factor=1.0, trace=traces[2])
    return output, log_sum_exp, matrix
