# pyright: reportArgumentType=false, reportCallIssue=false
"""FlashAttention-1, backward. Dao et al. 2022, Algorithm 4.

Two things differ from the paper. P is rebuilt from the log-sum-exp, one number a query, instead of from m and
l. And dQ grows in float32: kept in float16 it is rounded once for each tile of keys, and its largest error
was up to 1.9 times eager's after 20 tiles and 5.6 times after 256, against 0.7 times in float32.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.fa1.tile_sizes import BACKWARD
from kernels.fa1.visits import first_visited, float32_scratch
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.tile_sizes import padded, pick
from kernels.tiles import (
    head_pointer,
    keys_in_sight,
    load_tile,
    load_vector,
    offsets_are_wide,
    on_device_of,
    store_tile,
    tl,
    triton,
    weights_from_lse,
)


@triton.jit
def backward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    output_ptr,
    lse_ptr,
    grad_output_ptr,
    grad_lse_ptr,
    grad_q_ptr,
    unfinished_ptr,
    grad_k_ptr,
    grad_v_ptr,
    q_strides,
    k_strides,
    v_strides,
    output_strides,
    grad_output_strides,
    grad_q_strides,
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
    HAS_GRAD_LSE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: one head of keys and values. `unfinished` lies like grad_q, lse as [batch, heads, queries]."""
    # step: Backward: one program takes a head of keys and values
    batch, kv_head = tl.program_id(0).to(tl.int64) // kv_heads, tl.program_id(0) % kv_heads
    k_head = head_pointer(k_ptr, k_strides, batch, kv_head)
    v_head = head_pointer(v_ptr, v_strides, batch, kv_head)
    grad_k_head = head_pointer(grad_k_ptr, grad_k_strides, batch, kv_head)
    grad_v_head = head_pointer(grad_v_ptr, grad_v_strides, batch, kv_head)

    for key_start in range(0, keys, BLOCK_K):
        # step: Hold one tile of keys and values, and its gradients
        k = load_tile(
            k_head, key_start, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE
        )
        v = load_tile(
            v_head, key_start, keys, v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE
        )
        grads = tl.zeros([BLOCK_K, BLOCK_D], tl.float32), tl.zeros([BLOCK_K, BLOCK_D], tl.float32)

        # step: Walk past the queries of every head that shares them
        first_query = first_visited(key_start, queries, keys, BLOCK_Q, CAUSAL)
        for head in range(kv_head * group, kv_head * group + group):
            rows = (batch * kv_heads * group + head) * queries
            query_side = (
                head_pointer(q_ptr, q_strides, batch, head),
                head_pointer(output_ptr, output_strides, batch, head),
                head_pointer(grad_output_ptr, grad_output_strides, batch, head),
                lse_ptr + rows,
                grad_lse_ptr + rows,
                head_pointer(unfinished_ptr, grad_q_strides, batch, head),
                head_pointer(grad_q_ptr, grad_q_strides, batch, head),
            )
            # Hoisted out of the loop, what is made from K and V would fill the registers, and they spill.
            for query_start in tl.range(first_query, queries, BLOCK_Q, disable_licm=True):
                grads = visit(
                    grads, k, v, query_side, key_start, query_start, queries, keys,
                    q_strides[2:], output_strides[2:], grad_output_strides[2:], grad_q_strides[2:],
                    scale, scale_log2e, HEAD_DIM, BLOCK_Q, BLOCK_D, CAUSAL, HAS_GRAD_LSE, WIDE,
                )  # fmt: skip
        finish_keys(
            grad_k_head, grad_v_head, grads, scale, key_start, keys,
            grad_k_strides[2:], grad_v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, WIDE,
        )  # fmt: skip
        tl.debug_barrier()  # The next pass may read in one thread what another has written.


# --- what the kernel does, in the order in which it does it -------------------------------------------


@triton.jit
def rebuild(q, k, v, grad_output, log_sum_exp, delta, visible, scale_log2e):
    """Weights and gradients of the scores, keys as rows. Algorithm 4 lines 11, 14, 17 and 20.

    Both are computed lying the way they are used: a product that is turned on its side to enter the next
    product is miscompiled on Hopper (Triton 3.4 to 3.7).
    """
    # step: Rebuild the weights from the log-sum-exp
    scores = tl.dot(k, tl.trans(q), input_precision="ieee")  # [BLOCK_K, BLOCK_Q]
    weights = weights_from_lse(scores, log_sum_exp[None, :], scale_log2e)
    weights = tl.where(visible, weights, 0.0)

    # step: Go back through the softmax
    grad_weights = tl.dot(v, tl.trans(grad_output), input_precision="ieee")
    return weights, weights * (grad_weights - delta[None, :])


@triton.jit
def visit(
    grads,
    k,
    v,
    query_side,
    key_start,
    query_start,
    queries,
    keys,
    q_strides,
    output_strides,
    grad_output_strides,
    grad_q_strides,
    scale,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_GRAD_LSE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One tile of queries meets the tile of keys. -> gradients of keys and values. Algorithm 4 lines 16 to 22."""
    q_head, output_head, grad_output_head, lse_head, grad_lse_head = query_side[:5]
    q = load_tile(q_head, query_start, queries, q_strides, HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE)
    output = load_tile(
        output_head, query_start, queries, output_strides, HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE
    )
    grad_output = load_tile(
        grad_output_head, query_start, queries, grad_output_strides,
        HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    log_sum_exp = load_vector(lse_head, query_start, queries, 0.0, BLOCK_Q)

    delta = tl.sum(grad_output.to(tl.float32) * output.to(tl.float32), 1)
    if HAS_GRAD_LSE:
        delta -= load_vector(grad_lse_head, query_start, queries, 0.0, BLOCK_Q)
    first_unseen, _, seen_by_any = keys_in_sight(query_start, queries, keys, BLOCK_Q, CAUSAL)
    key = key_start + tl.arange(0, k.shape[0])
    weights, grad_scores = rebuild(
        q, k, v, grad_output, log_sum_exp, delta, key[:, None] < first_unseen[None, :], scale_log2e
    )

    # step: Add to the gradients of keys and values on chip
    grad_k, grad_v = grads
    grad_v = tl.dot(weights.to(q.dtype), grad_output, grad_v, input_precision="ieee")
    grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision="ieee")

    # step: Add to the gradient of the queries in HBM
    unfinished_head, grad_q_head = query_side[5:]
    written = tl.where(key_start == 0, 0, queries)  # at the first keys nothing is there to be read
    grad_q = load_tile(
        unfinished_head, query_start, written, grad_q_strides,
        HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    addition = tl.dot(tl.trans(k), grad_scores.to(k.dtype), input_precision="ieee")
    grad_q += tl.trans(addition)  # not turned before its product, only to be stored
    tl.debug_barrier()  # No thread overwrites what another has yet to read.
    if key_start + k.shape[0] < seen_by_any:
        store_tile(
            unfinished_head, grad_q, query_start, queries, grad_q_strides,
            HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
        )  # fmt: skip
    else:
        store_tile(
            grad_q_head, grad_q * scale, query_start, queries, grad_q_strides,
            HEAD_DIM, BLOCK_Q, BLOCK_D, WIDE,
        )  # fmt: skip
    return grad_k, grad_v


@triton.jit
def finish_keys(
    grad_k_head,
    grad_v_head,
    grads,
    scale,
    key_start,
    keys,
    grad_k_strides,
    grad_v_strides,
    HEAD_DIM: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The keys of this tile are done: no later pass comes back to them. Algorithm 4 line 24."""
    # step: Write the gradients of keys and values once
    grad_k, grad_v = grads
    store_tile(
        grad_k_head, grad_k * scale, key_start, keys, grad_k_strides,
        HEAD_DIM, BLOCK_K, BLOCK_D, WIDE,
    )  # fmt: skip
    store_tile(
        grad_v_head, grad_v, key_start, keys, grad_v_strides, HEAD_DIM, BLOCK_K, BLOCK_D, WIDE
    )


# --- launch -------------------------------------------------------------------------------------------


def launch_backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Nothing empty -> gradients like q, k and v. Those of shared heads are summed on chip, in a fixed order."""
    q, k, v, output = saved.q, saved.k, saved.v, saved.output
    problem = Problem.of(q, k, saved.causal)
    block_d = padded(problem.head_dim)
    tiles = pick(BACKWARD, q.device, q.element_size(), problem.head_dim)
    grad_q, grad_k, grad_v = (torch.empty_like(t) for t in (q, k, v))
    unfinished = float32_scratch(grad_q)
    log_sum_exp = saved.log_sum_exp.contiguous()
    grad_lse = log_sum_exp if grad_log_sum_exp is None else grad_log_sum_exp.contiguous()
    with on_device_of(q):
        backward_kernel[(problem.batch * k.shape[1],)](
            q,
            k,
            v,
            output,
            log_sum_exp,
            grad_output,
            grad_lse,
            grad_q,
            unfinished,
            grad_k,
            grad_v,
            q.stride(),
            k.stride(),
            v.stride(),
            output.stride(),
            grad_output.stride(),
            grad_q.stride(),
            grad_k.stride(),
            grad_v.stride(),
            k.shape[1],
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
            HAS_GRAD_LSE=grad_log_sum_exp is not None,
            WIDE=offsets_are_wide(q, k, v, output, grad_output, grad_q, grad_k, grad_v),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return grad_q, grad_k, grad_v
