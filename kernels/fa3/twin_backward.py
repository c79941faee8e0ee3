# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The plain Triton twin of fa3's backward pass: the same tiles and the same bytes, one program after another.

The kernels before and after the pass are plain Triton and run as they are; which program has which keys, and its
walk along the queries, are those of `kernels.fa3.backward_order`. The pass itself is told once more, without warps
and TMA. Here nobody can wait for a turn, since programs run to their end in the order of their tickets: each tile of
dQ takes the same additions, in another order.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.fa2.backward import launch_backward as launch_fa2
from kernels.fa3 import backward_order, backward_pass
from kernels.fa3.backward import BLOCK_K, BLOCK_Q, in_one_pass, rows_like
from kernels.fa3.backward_cut import ceil_div, cut_of
from kernels.fa3.backward_edges import PIECE, launch_finish, launch_parts, launch_prepare
from kernels.fa3.twin_pieces import in_plain_triton
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.tile_sizes import as_if_on
from kernels.tiles import (
    head_pointer,
    load_tile,
    load_vector,
    offsets_are_wide,
    store_tile,
    tl,
    triton,
)
from kernels.triton_mode import interprets

PROGRAMS = 132
"""One for each multiprocessor of an H100 SXM or an H200: the tickets of a wave."""

first_query_tile = in_plain_triton(backward_order.first_query_tile)
key_tile_of = in_plain_triton(
    backward_order.key_tile_of, place_of=in_plain_triton(backward_order.place_of)
)
start_of_walk = in_plain_triton(
    backward_order.start_of_walk, FREE_STEPS=backward_order.FREE_STEPS.value
)
visit_of = in_plain_triton(backward_order.visit_of)
walk_of = in_plain_triton(
    backward_pass.walk_of, first_query_tile=first_query_tile, start_of_walk=start_of_walk
)


@triton.jit
def hide(weights, first_key, query_start, queries, keys, CAUSAL: tl.constexpr):
    """0 for a key that is not there, or lies behind what the query may see. [BLOCK_K, BLOCK_Q]"""
    key = first_key + tl.arange(0, weights.shape[0])
    seen = (key < keys)[:, None]
    if CAUSAL:
        query = query_start + tl.arange(0, weights.shape[1])
        seen = seen & (key[:, None] <= (query + keys - queries)[None, :])
    return tl.where(seen, weights, 0.0)


@triton.jit
def one_query_tile(
    grads, k, v, q, grad_output, facts, first_key, query_start, queries, keys, scale_log2e,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """A tile of queries meets this program's keys. -> (dK, dV), and its share of dQ [BLOCK_Q, BLOCK_D]

    S and P, dP and dS lie transposed, [BLOCK_K, BLOCK_Q]. `facts`: base-2 log-sum-exp and delta of each query.
    """
    grad_k, grad_v = grads
    log2_sum_exp, delta = facts
    scores = tl.dot(k, tl.trans(q), input_precision="ieee")
    grad_weights = tl.dot(v, tl.trans(grad_output), input_precision="ieee")
    weights = tl.math.exp2(scores * scale_log2e - log2_sum_exp[None, :])
    weights = hide(weights, first_key, query_start, queries, keys, CAUSAL)
    grad_v = tl.dot(weights.to(q.dtype), grad_output, grad_v, input_precision="ieee")
    grad_scores = (weights * (grad_weights - delta[None, :])).to(q.dtype)
    grad_k = tl.dot(grad_scores, q, grad_k, input_precision="ieee")
    return (grad_k, grad_v), tl.dot(tl.trans(grad_scores), k, input_precision="ieee")


@triton.jit
def as_held(pair):
    """Two tiles of 64 rows [2, 64, width], one after the other in the order of the kernel's threads."""
    WIDTH: tl.constexpr = pair.shape[2]
    turned = pair.reshape([2, 4, 2, 8, WIDTH // 8, 4, 2]).permute(0, 4, 1, 3, 5, 2, 6)
    return turned.reshape([2 * 64 * WIDTH])


@triton.jit
def put_part(place, grad_k, grad_v):
    """Write the float32 sums of a part of the walk, dK and then dV, [128, width]."""
    HELD: tl.constexpr = grad_k.shape[0] * grad_k.shape[1]
    inside = tl.arange(0, HELD)
    tl.store(place + inside, as_held(grad_k.reshape([2, 64, grad_k.shape[1]])))
    tl.store(place + HELD + inside, as_held(grad_v.reshape([2, 64, grad_v.shape[1]])))


@triton.jit
def add_pieces(sums_ptr, turns_ptr, tile, grad_q, is_first, BLOCK_Q: tl.constexpr):
    """Add a share of a tile of dQ to its two pieces, each 64 x 64 numbers in the order of the kernel's threads.

    is_first: nothing is there yet, and so it is only written.
    """
    if BLOCK_Q == 128:
        pieces = grad_q.reshape([2, 64, 64])
    else:
        pieces = grad_q.reshape([64, 2, 64]).permute(1, 0, 2)
    place = sums_ptr + tile * (2 * 4096) + tl.arange(0, 2 * 4096)
    flat = as_held(pieces)
    turns = turns_ptr + 2 * tile + tl.arange(0, 2)
    before = tl.load(turns)  # the kernel looks until its turn has come, which is seldom later
    if not is_first:
        flat += tl.load(place)
    tl.store(place, flat)
    tl.store(turns, before + 1)


@triton.jit
def draw(ticket_ptr):
    """The ticket of this program: its number, since programs run one after another here."""
    tl.store(ticket_ptr, tl.load(ticket_ptr) + 1)
    return tl.program_id(0)


@triton.jit(
    do_not_specialize=[
        "kv_rows", "heads", "kv_heads", "queries", "keys", "together", "slots", "whole", "parts"
    ]
)  # fmt: skip
def pass_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_output_ptr,
    facts_ptr,
    sums_ptr,
    ticket_ptr,
    turns_ptr,
    grad_k_ptr,
    grad_v_ptr,
    parts_ptr,
    q_strides,
    k_strides,
    v_strides,
    grad_output_strides,
    grad_k_strides,
    grad_v_strides,
    kv_rows,
    heads,
    kv_heads,
    queries,
    keys,
    together,
    slots,
    whole,
    parts,
    scale,
    scale_log2e,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: one tile of keys of one kv head, against the queries of the heads that share it, or a part."""
    key_tiles, query_tiles = tl.cdiv(keys, BLOCK_K), tl.cdiv(queries, BLOCK_Q)
    kv_row, key_tile, part, count, first_tile, last_tile = key_tile_of(
        draw(ticket_ptr), key_tiles, kv_rows, together, slots, whole, parts
    )
    group, first_key = heads // kv_heads, key_tile * BLOCK_K
    batch, kv_head = (kv_row // kv_heads).to(tl.int64), (kv_row % kv_heads).to(tl.int64)
    walk = walk_of(
        key_tile, part, count, first_tile, last_tile, group, queries, keys, BLOCK_Q, BLOCK_K, CAUSAL
    )
    k_head = head_pointer(k_ptr, k_strides, batch, kv_head)
    v_head = head_pointer(v_ptr, v_strides, batch, kv_head)
    k = load_tile(k_head, first_key, keys, k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
    v = load_tile(v_head, first_key, keys, v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, True, WIDE)
    grads = (tl.zeros([BLOCK_K, BLOCK_D], tl.float32), tl.zeros([BLOCK_K, BLOCK_D], tl.float32))
    for step in range(0, walk[1]):
        _, member, tile = visit_of(step, walk)
        head, query_start = kv_head * group + member, tile * BLOCK_Q
        row = (batch * heads + head) * query_tiles + tile
        q = load_tile(
            head_pointer(q_ptr, q_strides, batch, head),
            query_start, queries, q_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
        )  # fmt: skip
        grad_output = load_tile(
            head_pointer(grad_output_ptr, grad_output_strides, batch, head),
            query_start, queries, grad_output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
        )  # fmt: skip
        of_tile = facts_ptr + row * (2 * BLOCK_Q)
        facts = (
            load_vector(of_tile, 0, BLOCK_Q, 0.0, BLOCK_Q),
            load_vector(of_tile, BLOCK_Q, 2 * BLOCK_Q, 0.0, BLOCK_Q),
        )
        grads, grad_q = one_query_tile(
            grads, k, v, q, grad_output, facts, first_key, query_start, queries, keys, scale_log2e, CAUSAL
        )  # fmt: skip
        add_pieces(sums_ptr, turns_ptr, row, grad_q, key_tile == 0, BLOCK_Q)
    if count == 1:
        store_tile(
            head_pointer(grad_k_ptr, grad_k_strides, batch, kv_head),
            grads[0] * scale, first_key, keys, grad_k_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, WIDE,
        )  # fmt: skip
        store_tile(
            head_pointer(grad_v_ptr, grad_v_strides, batch, kv_head),
            grads[1], first_key, keys, grad_v_strides[2:], HEAD_DIM, BLOCK_K, BLOCK_D, WIDE,
        )  # fmt: skip
    else:
        mine = ((kv_row * key_tiles + key_tile - whole) * parts + part) * (2 * BLOCK_K * BLOCK_D)
        put_part(parts_ptr + mine, grads[0] * scale, grads[1])


def launch_twin_backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None, slots: int = PROGRAMS
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients like q, k and v, as by `kernels.fa3.backward.launch_backward`. `slots`: of the GPU that is played.

    Raises:
        RuntimeError: Triton compiles here, and programs would run at once.
    """
    if not interprets():
        raise RuntimeError("fa3's twin adds to dQ in Triton's interpreter only; choose fa3 or fa2.")
    if in_one_pass(Problem.of(saved.q, saved.k)):
        return launch_one_pass(saved, grad_output, grad_log_sum_exp, slots)
    with as_if_on("sm_90"):
        return launch_fa2(saved, grad_output, grad_log_sum_exp)


def launch_one_pass(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None, slots: int = PROGRAMS
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, of a head of at most 128 dimensions and any number of keys."""
    head_dim = saved.q.shape[-1]
    grads = torch.empty_like(saved.q), rows_like(saved.k), rows_like(saved.v)
    block_d = 64 if head_dim <= 64 else 128
    block_q = BLOCK_Q[block_d]
    facts, turns = launch_prepare(
        saved.output, grad_output, saved.log_sum_exp, grad_log_sum_exp, block_q, block_d
    )
    sums = facts.new_empty(facts.shape[0] * PIECE)
    batch, kv_heads, keys, _ = saved.k.shape
    tiles = ceil_div(keys, BLOCK_K) * batch * kv_heads
    visits = ceil_div(saved.q.shape[2], block_q) * (saved.q.shape[1] // kv_heads)
    whole, count = (tiles, 1) if saved.causal else cut_of(tiles, visits, slots)
    parts = facts.new_empty((tiles - whole, count, 2, BLOCK_K, block_d))
    tensors = [saved.q, saved.k, saved.v, grad_output, facts, sums, turns[-1:], turns, *grads[1:]]
    pass_kernel[(whole + (tiles - whole) * count,)](
        *tensors,
        parts,
        *(t.stride() for t in [*tensors[:4], *grads[1:]]),
        batch * kv_heads,
        saved.q.shape[1],
        kv_heads,
        saved.q.shape[2],
        keys,
        batch * kv_heads if saved.causal else 1,
        slots,
        whole,
        count,
        saved.scale,
        saved.scale * math.log2(math.e),
        HEAD_DIM=head_dim,
        BLOCK_Q=block_q,
        BLOCK_K=BLOCK_K,
        BLOCK_D=block_d,
        CAUSAL=saved.causal,
        WIDE=offsets_are_wide(saved.q, saved.k, saved.v, grad_output),
    )
    if whole < tiles:
        launch_parts(parts, grads[1], grads[2], whole)
    launch_finish(sums, turns, grads[0], saved.scale, block_q, block_d)
    return grads
