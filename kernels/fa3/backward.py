"""The backward pass on Hopper: two facts of each query, one pass over the keys, dQ from float32 sums."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from kernels.fa2.backward import launch_backward as launch_fa2
from kernels.fa3.backward_cut import ceil_div, cut_of
from kernels.fa3.backward_edges import launch_finish, launch_parts, launch_prepare
from kernels.fa3.backward_pass import pass_kernel
from kernels.hopper import TensorDescriptor, copyable, describe, gl
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.tiles import on_device_of

WIDE_HEAD_DIM, NARROW_HEAD_DIM, FEW_KEYS = 128, 32, 256
"""Beyond these fa2's backward pass is taken."""

BLOCK_K = 128
BLOCK_Q = {64: 128, 128: 64}
"""Padded head_dim -> queries of a tile; keys are 128. More of either do not fit into registers."""
STAGES = 2
PIECE_ROWS, PIECE_WIDTH = 16, 256


@cache
def multiprocessors(device: torch.device) -> int:
    """132 on an H200; also where a kernel is only compiled."""
    if device.type != "cuda":
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


def plain(tensor: Tensor, rows: int) -> TensorDescriptor:
    """A TMA descriptor of float32 [many, width] that copies `rows` whole rows, just as they lie."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    width = tensor.shape[1]
    return TensorDescriptor(tensor, list(tensor.shape), [width, 1], [rows, width], layout)


def rows_like(tensor: Tensor) -> Tensor:
    """Empty, like this one; with rows that begin at multiples of 16 bytes where its own do not."""
    like = torch.empty_like(tensor)
    apart = [s for s, n in zip(like.stride()[:-1], like.shape[:-1], strict=True) if n > 1]
    if like.stride(-1) == 1 and not any(s % 8 for s in apart):
        return like
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def launch_backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients like q, k and v, the same bits in every run; by fa2's backward where `in_one_pass` says no."""
    if in_one_pass(Problem.of(saved.q, saved.k)):
        return launch_one_pass(saved, grad_output, grad_log_sum_exp)
    return launch_fa2(saved, grad_output, grad_log_sum_exp)


def in_one_pass(problem: Problem) -> bool:
    """Whether this problem gets the pass for Hopper; fa2's backward takes the others.

    Those are heads of more than 128 dimensions, whose dK, dV and S do not fit into the registers of two groups of
    warps; heads of at most 32, which would be padded to 64; and at most 256 keys, where a program's beginning
    is most of its time. The last two are estimates. The pass was timed with 64 and 128 dimensions and from 1370
    tokens on, and was faster in every case.
    """
    return NARROW_HEAD_DIM < problem.head_dim <= WIDE_HEAD_DIM and problem.keys > FEW_KEYS


def launch_one_pass(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients like q, k and v, of a head of at most 128 dimensions.

    Memory beyond them: the float32 sums of dQ, with head_dim padded to 64 or 128 and queries to whole tiles,
    some 8 bytes a query, and of walks that are cut (`backward_cut`) dK and dV of each part in float32. q, k, v and
    grad_output are copied where TMA cannot read them (`kernels.hopper.copyable`).
    """
    head_dim = saved.q.shape[-1]
    grads = [torch.empty_like(saved.q), rows_like(saved.k), rows_like(saved.v)]
    grad_output = copyable(grad_output)
    block_d = 64 if head_dim <= 64 else 128
    block_q = BLOCK_Q[block_d]
    facts, turns = launch_prepare(
        saved.output, grad_output, saved.log_sum_exp, grad_log_sum_exp, block_q, block_d
    )
    sums = facts.new_empty((facts.shape[0] * PIECE_ROWS, PIECE_WIDTH))
    with on_device_of(saved.q):
        launch_pass(saved, grad_output, facts, turns, sums, grads)
    launch_finish(sums, turns, grads[0], saved.scale, block_q, block_d)
    return grads[0], grads[1], grads[2]


def launch_pass(
    saved: Saved,
    grad_output: Tensor,
    facts: Tensor,
    turns: Tensor,
    sums: Tensor,
    grads: list[Tensor],
) -> None:
    """Fill dK and dV, and add dQ to the sums."""
    q, k, v = (copyable(t) for t in (saved.q, saved.k, saved.v))
    batch, kv_heads, keys, head_dim = k.shape
    block_d, block_q = 64 if head_dim <= 64 else 128, facts.shape[1]
    slots, tiles = multiprocessors(q.device), ceil_div(keys, BLOCK_K) * batch * kv_heads
    visits = ceil_div(q.shape[2], block_q) * (q.shape[1] // kv_heads)
    whole, count = (tiles, 1) if saved.causal else cut_of(tiles, visits, slots)
    parts = facts  # of nothing
    if whole < tiles:
        parts = facts.new_empty((tiles - whole, count, 2, BLOCK_K, block_d))
    pass_kernel[(whole + (tiles - whole) * count,)](
        describe(q, block_q, block_d),
        describe(k, BLOCK_K, block_d),
        describe(v, BLOCK_K, block_d),
        describe(grad_output, block_q, block_d),
        plain(facts, 2),
        plain(sums, PIECE_ROWS),
        turns[-1:],
        turns,
        grads[1],
        grads[2],
        grads[1].stride(),
        grads[2].stride(),
        parts,
        batch * kv_heads,
        q.shape[1],
        kv_heads,
        q.shape[2],
        keys,
        # Full: head by head, so that dQ of few heads stays in L2. Causal: tile by tile through all heads, the
        # longest walks first, so that the programs of a wave are equally long.
        batch * kv_heads if saved.causal else 1,
        slots,
        whole,
        count,
        saved.scale,
        saved.scale * math.log2(math.e),
        HEAD_DIM=head_dim,
        STAGES=STAGES,
        CAUSAL=saved.causal,
        LOOK_AHEAD=block_q < BLOCK_K,
        REGISTERS=240,
        FEW_REGISTERS=24,
        num_warps=4,
        maxnreg=168,
    )
    if whole < tiles:
        launch_parts(parts, grads[1], grads[2], whole)
