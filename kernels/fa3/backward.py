"""The backward pass on Hopper: two facts of each query, one pass over the keys, dQ from float32 sums."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from kernels.fa2.backward import launch_backward as launch_fa2
from kernels.fa3.backward_edges import launch_finish, launch_prepare
from kernels.fa3.backward_order import FREE_STEPS
from kernels.fa3.backward_pass import pass_kernel
from kernels.hopper import TensorDescriptor, copyable, describe, gl
from kernels.implementation import Saved
from kernels.problem import Problem
from kernels.tiles import on_device_of, triton

MAX_HEAD_DIM = 128
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
    """Gradients like q, k and v, the same bits in every run.

    Memory beyond them: the float32 sums of dQ, with head_dim padded to 64 or 128 and queries to whole tiles,
    and 8 bytes a query. q, k, v and grad_output are copied where TMA cannot read them (`kernels.hopper.copyable`).
    A head of more than 128 dimensions goes to fa2's backward pass: dK, dV and S of such keys do not fit into the
    registers of two groups of warps.
    """
    problem = Problem.of(saved.q, saved.k)
    if problem.head_dim > MAX_HEAD_DIM:
        return launch_fa2(saved, grad_output, grad_log_sum_exp)
    grads = [torch.empty_like(saved.q), rows_like(saved.k), rows_like(saved.v)]
    grad_output = copyable(grad_output)
    block_d = 64 if problem.head_dim <= 64 else 128
    block_q = BLOCK_Q[block_d]
    facts, turns = launch_prepare(
        saved.output, grad_output, saved.log_sum_exp, grad_log_sum_exp, block_q, block_d
    )
    sums = facts.new_empty((facts.shape[0] * PIECE_ROWS, PIECE_WIDTH))
    with on_device_of(saved.q):
        launch_pass(saved, grad_output, facts, turns, sums, grads)
    launch_finish(sums, turns, grads[0], saved.scale, block_q, block_d)
    return grads[0], grads[1], grads[2]


def heads_together(
    kv_rows: int, visits: int, slots: int, causal: bool, block_q: int
) -> tuple[int, bool]:
    """-> how many heads take tickets in turns, and whether a turn is likely to have come before it is needed.

    Full: as few as let neighbours begin FREE_STEPS tiles apart, so that dQ of few heads stays in L2. Causal: all,
    so that the programs of a wave, whose walks begin where their keys are first seen, are equally long.
    """
    if causal:
        return kv_rows, block_q < BLOCK_K
    free = int(FREE_STEPS.value)
    wanted = -(-free * slots // visits)
    return min(wanted, kv_rows), wanted <= kv_rows


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
    slots, visits = (
        multiprocessors(q.device),
        -(-q.shape[2] // block_q) * (q.shape[1] // kv_heads),
    )
    together, look_ahead = heads_together(batch * kv_heads, visits, slots, saved.causal, block_q)
    pass_kernel[(triton.cdiv(keys, BLOCK_K) * batch * kv_heads,)](
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
        batch * kv_heads,
        q.shape[1],
        kv_heads,
        q.shape[2],
        keys,
        together,
        slots,
        saved.scale,
        saved.scale * math.log2(math.e),
        HEAD_DIM=head_dim,
        STAGES=STAGES,
        CAUSAL=saved.causal,
        LOOK_AHEAD=look_ahead,
        REGISTERS=240,
        FEW_REGISTERS=24,
        num_warps=4,
        maxnreg=168,
    )
