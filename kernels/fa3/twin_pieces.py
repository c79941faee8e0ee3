# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The twin of fa3 in fa3's own pieces: which program takes which queries against which keys, and in which order.

The order is not told a second time here: it is that of `kernels.fa3.schedule`, whose Gluon functions use nothing
that plain Triton has not. So what is counted in Triton's interpreter are the bytes of fa3's pieces.
"""

from __future__ import annotations

from types import FunctionType

from kernels.fa3 import schedule
from kernels.fa3.twin import walk_keys
from kernels.tiles import head_pointer, load_tile, store_tile, store_vector, tl, triton


def in_plain_triton(function, **helpers):
    """A jitted function of Gluon as one of Triton: the same lines with Triton's language under Gluon's name.

    `helpers`: what it calls, made plain before.
    """
    known = {**function.fn.__globals__, "gl": tl, "tl": tl, **helpers}
    return triton.jit(FunctionType(function.fn.__code__, known, function.fn.__name__))


turns_of = in_plain_triton(schedule.turns_of)
piece_at = in_plain_triton(schedule.piece_at)


@triton.jit
def attend_piece(
    q_head,
    k_head,
    v_head,
    q_strides,
    k_strides,
    v_strides,
    query_start,
    query_end,
    first_tile,
    end_tile,
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
    MOST_RISE: tl.constexpr,
):
    """Queries query_start ... query_end - 1 against some of the key tiles.

    -> their share of the output, divided [BLOCK_Q, BLOCK_D], and its log-sum-exp in powers of two [BLOCK_Q]
    """
    q = load_tile(q_head, query_start, query_end, q_strides, HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE)
    if NEGATE:
        q = -q
    first_unseen = tl.full([BLOCK_Q], keys, tl.int32)
    whole_tiles = keys // BLOCK_K
    if CAUSAL:
        query = query_start + tl.arange(0, BLOCK_Q)
        first_unseen = tl.minimum(keys, query + 1 + keys - queries)
        whole_tiles = tl.minimum(keys, tl.maximum(0, query_start + 1 + keys - queries)) // BLOCK_K
    sums, running_max, running_sum = walk_keys(
        q, k_head, v_head, k_strides, v_strides, first_unseen, first_tile, whole_tiles, end_tile,
        keys, scale_log2e, HEAD_DIM, BLOCK_K, BLOCK_D, CAUSAL, WIDE, MOST_RISE,
    )  # fmt: skip
    # A query that saw nothing has sum 0: its output is 0 and its log-sum-exp -inf.
    saw_nothing = running_sum == 0.0
    running_sum = tl.where(saw_nothing, 1.0, running_sum)
    log2_sum = tl.where(saw_nothing, float("-inf"), running_max + tl.math.log2(running_sum))
    return sums / running_sum[:, None], log2_sum


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    output_ptr,
    lse_ptr,
    part_ptr,
    part_lse_ptr,
    q_strides,
    k_strides,
    v_strides,
    output_strides,
    heads,
    group,
    queries,
    keys,
    plan,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    CONSUMERS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ORDER: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
    MOST_RISE: tl.constexpr,
):
    """One program for each multiprocessor: piece after piece of up to CONSUMERS blocks of 64 queries."""
    program = tl.program_id(0)
    turns, at = turns_of(program, plan, keys, CONSUMERS, BLOCK_K, ORDER)
    for turn in range(turns):
        piece, at = piece_at(turn, at, program, plan, queries, keys, CONSUMERS, BLOCK_K, ORDER)
        batch_head, block, active, first_tile, end_tile, slot = piece
        batch, head = batch_head // heads, batch_head % heads
        query_start = block * 64
        query_end = tl.minimum(queries, query_start + active * 64)
        output, log2_sum = attend_piece(
            head_pointer(q_ptr, q_strides, batch.to(tl.int64), head.to(tl.int64)),
            head_pointer(k_ptr, k_strides, batch.to(tl.int64), (head // group).to(tl.int64)),
            head_pointer(v_ptr, v_strides, batch.to(tl.int64), (head // group).to(tl.int64)),
            q_strides[2:], k_strides[2:], v_strides[2:], query_start, query_end, first_tile,
            end_tile, queries, keys, scale_log2e,
            HEAD_DIM, BLOCK_Q, BLOCK_K, BLOCK_D, CAUSAL, NEGATE, WIDE, MOST_RISE,
        )  # fmt: skip
        if slot >= 0:
            rows = active * 64
            start = slot.to(tl.int64) * CONSUMERS * 64
            store_tile(
                part_ptr + start * BLOCK_D, output, 0, rows, (BLOCK_D, 1),
                BLOCK_D, BLOCK_Q, BLOCK_D, WIDE,
            )  # fmt: skip
            store_vector(part_lse_ptr + start, log2_sum, 0, rows, BLOCK_Q)
        else:
            output_head = head_pointer(
                output_ptr, output_strides, batch.to(tl.int64), head.to(tl.int64)
            )
            store_tile(
                output_head, output, query_start, query_end, output_strides[2:],
                HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
            )  # fmt: skip
            log_sum_exp = log2_sum * 0.6931471805599453  # log(2)
            lse_head = lse_ptr + batch_head.to(tl.int64) * queries
            store_vector(lse_head, log_sum_exp, query_start, query_end, BLOCK_Q)


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def stream_kernel(
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
    parts,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: one of the parts of a head, ROWS queries, against all keys, which are few."""
    batch_head = (tl.program_id(0) // parts).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    query_start = tl.program_id(0) % parts * ROWS
    query_end = tl.minimum(queries, query_start + ROWS)
    output, log2_sum = attend_piece(
        head_pointer(q_ptr, q_strides, batch, head),
        head_pointer(k_ptr, k_strides, batch, head // group),
        head_pointer(v_ptr, v_strides, batch, head // group),
        q_strides[2:], k_strides[2:], v_strides[2:], query_start, query_end, 0,
        tl.cdiv(keys, BLOCK_K), queries, keys, scale_log2e,
        HEAD_DIM, BLOCK_Q, BLOCK_K, BLOCK_D, CAUSAL, NEGATE, WIDE, 0,
    )  # fmt: skip
    store_tile(
        head_pointer(output_ptr, output_strides, batch, head), output, query_start, query_end,
        output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
    )  # fmt: skip
    log_sum_exp = log2_sum * 0.6931471805599453  # log(2)
    store_vector(lse_ptr + batch_head * queries, log_sum_exp, query_start, query_end, BLOCK_Q)
