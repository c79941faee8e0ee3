# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention in FP8: the launch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.fa3.forward import multiprocessors
from kernels.fa3.merge import MERGED_ROWS, merge_kernel
from kernels.fa3.schedule import plan_for
from kernels.fp8.forward_kernel import forward_kernel
from kernels.fp8.quantized import KEY_ROWS, Quantized
from kernels.hopper import TensorDescriptor, gl
from kernels.problem import Problem
from kernels.tiles import on_device_of


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for."""

    HEAD_DIM: int
    CONSUMERS: int  # warpgroups, of 64 queries each
    STAGES: int  # tiles of keys, and of values, in shared memory at once
    REGISTERS: int  # of a consumer's thread
    FEW: int  # of a producer's thread
    PROMOTE: bool  # add up tiles in float32
    TURNS: bool
    EARLY: bool
    LAZY: bool = False
    LATE: bool = True
    NAMED: bool = False
    QUICK: int = 0  # eighths of the exponentials that are approximated
    BLOCK_K: int = KEY_ROWS
    ORDER: int = 0  # of the pieces, see `kernels.fa3.schedule`


SHAPES = {
    64: Shape(64, 2, 4, 240, 24, PROMOTE=True, TURNS=True, EARLY=True),
    128: Shape(128, 2, 4, 240, 24, PROMOTE=True, TURNS=True, EARLY=True),
    256: Shape(256, 2, 3, 240, 24, PROMOTE=False, TURNS=True, EARLY=True, LAZY=True, NAMED=True),
}


def launch_forward(
    held: Quantized,
    scale: float,
    causal: bool,
    dtype: torch.dtype,
    shape: Shape | None = None,
    results: tuple[Tensor, ...] | None = None,
    split: bool = True,
) -> tuple[Tensor, Tensor]:
    """What was quantised, a scale >= 0 -> output [batch, heads, queries, head_dim] in dtype, log_sum_exp float32."""
    shape = shape or SHAPES[held.head_dim]
    device = held.q.device
    problem = Problem(
        held.batch,
        held.heads,
        held.queries,
        held.keys,
        held.head_dim,
        "e4m3",
        causal,
        held.kv_heads,
    )
    programs = multiprocessors(device)
    order, plan = plan_for(problem, shape.CONSUMERS, shape.BLOCK_K, programs, None, split)
    shape = replace(shape, ORDER=order)
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = torch.empty(
        held.batch, held.queries, held.heads, held.head_dim, dtype=dtype, device=device
    ).transpose(1, 2)
    log_sum_exp = torch.empty(output.shape[:3], dtype=torch.float32, device=device)
    if results:
        output, log_sum_exp = results
    rows = 64 * shape.CONSUMERS
    part, part_lse = log_sum_exp, log_sum_exp
    if plan.share:
        part = log_sum_exp.new_empty(2 * programs * rows, held.head_dim)
        part_lse = log_sum_exp.new_empty(2 * programs * rows)
    sizes = (
        held.heads, held.heads // held.kv_heads, held.queries, held.keys, held.q.shape[1], held.k.shape[1],
    )  # fmt: skip
    with on_device_of(held.q):
        forward_kernel[(programs,)](
            descriptor(held.q, 64, shape.HEAD_DIM),
            descriptor(held.k, shape.BLOCK_K, shape.HEAD_DIM),
            descriptor(held.v, shape.HEAD_DIM, shape.BLOCK_K),
            held.q_scale, held.k_scale, held.v_scale, held.q_offset,
            log_sum_exp, output, part, part_lse, *output.stride()[:3], *plan, *sizes,
            scale * math.log2(math.e), shape, num_warps=4, maxnreg=128 if shape.CONSUMERS == 3 else 168,
        )  # fmt: skip
        if plan.share:
            merge(part, part_lse, output, log_sum_exp, plan, shape, held.keys)
    return output, log_sum_exp


def merge(part, part_lse, output, log_sum_exp, plan, shape: Shape, keys: int) -> None:
    """Put the split tiles together."""
    _, heads, queries, head_dim = output.shape
    rows, tiles = 64 * shape.CONSUMERS, -(-plan.blocks // shape.CONSUMERS)
    left = plan.batch_heads * tiles - plan.whole
    key_tiles = -(-keys // shape.BLOCK_K)
    merge_kernel[(left * rows // MERGED_ROWS,)](
        part, part_lse, output, log_sum_exp, output.stride(), plan.whole, plan.share, key_tiles, tiles,
        heads, queries, TILE_ROWS=rows, ROWS=MERGED_ROWS, HEAD_DIM=head_dim, BLOCK_D=head_dim,
    )  # fmt: skip


def descriptor(numbers: Tensor, rows: int, width: int) -> TensorDescriptor:
    """Of [heads, rows, width] as one matrix, whose tiles [rows, width] never reach past a head."""
    matrix = numbers.flatten(0, 1)
    layout = gl.NVMMASharedLayout.get_default_for([rows, width], gl.float8e4nv)
    return TensorDescriptor(matrix, list(matrix.shape), [matrix.shape[1], 1], [rows, width], layout)
