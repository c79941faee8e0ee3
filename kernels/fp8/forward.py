# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention in FP8: the launch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from kernels.fp8.forward_kernel import forward_kernel
from kernels.fp8.quantized import KEY_ROWS, Quantized
from kernels.hopper import TensorDescriptor, gl
from kernels.tiles import on_device_of


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for."""

    HEAD_DIM: int
    CONSUMERS: int  # warpgroups, of 64 queries each
    STAGES: int  # tiles of keys, and of values, in shared memory at once
    Q_STAGES: int  # tiles of queries
    REGISTERS: int  # of a consumer's thread
    FEW: int  # of a producer's thread
    PROMOTE: bool  # add up tiles in float32
    EARLY: bool  # wait for a step's tiles at the end of the step before
    LAZY: bool = False
    BYTES: bool = False  # weights by `weights_in_bytes`, where no key is hidden
    BLOCK_K: int = KEY_ROWS
    CAUSAL: bool = False


SHAPES = {
    64: Shape(64, 3, 4, 2, 160, 32, PROMOTE=False, EARLY=False, LAZY=True, BYTES=True),
    128: Shape(128, 2, 5, 2, 240, 24, PROMOTE=False, EARLY=True, LAZY=True, BYTES=True),
    256: Shape(256, 2, 3, 1, 240, 24, PROMOTE=False, EARLY=True, LAZY=True),
}


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def launch_forward(
    held: Quantized, scale: float, causal: bool, dtype: torch.dtype, exact: bool = False
) -> tuple[Tensor, Tensor]:
    """What was quantised, a scale > 0 -> output [batch, heads, queries, head_dim] in dtype, log_sum_exp float32."""
    shape = SHAPES[held.head_dim]
    shape = replace(shape, CAUSAL=causal, BYTES=shape.BYTES and not exact)
    device, head_dim = held.q.device, held.head_dim
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = torch.empty(
        held.batch, held.queries, held.heads, head_dim, dtype=dtype, device=device
    ).transpose(1, 2)
    log_sum_exp = torch.empty(output.shape[:3], dtype=torch.float32, device=device)
    total = held.batch * held.heads * -(-held.queries // (64 * shape.CONSUMERS))
    # Causal tiles differ in length: there the GPU hands out the next one as soon as a place is free.
    programs = total if causal else min(total, multiprocessors(device))
    with on_device_of(held.q):
        forward_kernel[(programs,)](
            descriptor(held.q, 64, head_dim),
            descriptor(held.k, shape.BLOCK_K, head_dim),
            descriptor(held.v, head_dim, shape.BLOCK_K),
            held.q_scale, held.k_scale, held.v_scale, held.q_offset, held.v_centre,
            log_sum_exp, output, *output.stride()[:3], held.heads, held.heads // held.kv_heads,
            held.queries, held.keys, held.q.shape[1], held.k.shape[1], total,
            scale * math.log2(math.e), shape,
            num_warps=4, maxnreg=128 if shape.CONSUMERS == 3 else 168,
        )  # fmt: skip
    return output, log_sum_exp


def descriptor(numbers: Tensor, rows: int, width: int) -> TensorDescriptor:
    """Of [heads, rows, width] as one matrix, whose tiles [rows, width] never reach past a head."""
    matrix = numbers.flatten(0, 1)
    layout = gl.NVMMASharedLayout.get_default_for([rows, width], gl.float8e4nv)
    return TensorDescriptor(matrix, list(matrix.shape), [matrix.shape[1], 1], [rows, width], layout)
