"""FlashAttention-3, forward: the launch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from kernels.fa3.forward_kernel import forward_kernel
from kernels.fa3.merge import MERGED_ROWS, merge_kernel
from kernels.fa3.schedule import Plan, plan_for
from kernels.hopper import copyable, describe
from kernels.problem import Problem
from kernels.tiles import on_device_of


@dataclass(frozen=True)
class Shape:
    """What the forward kernel is compiled for."""

    CONSUMERS: int  # warpgroups, of 64 queries each
    BLOCK_K: int
    BLOCK_D: int
    ORDER: int  # of the pieces, see `schedule`
    REGISTERS: int  # of a consumer's thread
    FEW: int  # of a producer's thread
    TURNS: bool
    EARLY: bool
    LAZY: bool
    PIN: bool = False
    LATE: bool = False


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def signed(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """-> q and a positive scale * log2(e): the maximum is taken of raw scores. Copies q for a scale <= 0."""
    if scale > 0:
        return q, scale * math.log2(math.e)
    if scale == 0:
        return torch.zeros_like(q), math.log2(math.e)
    return -q, -scale * math.log2(math.e)


WIDTHS = {
    64: dict(CONSUMERS=3, BLOCK_K=128, REGISTERS=160, FEW=32, TURNS=True, EARLY=False, LAZY=False),
    128: dict(CONSUMERS=2, BLOCK_K=128, REGISTERS=240, FEW=24, TURNS=True, EARLY=True, LAZY=True),
    256: dict(CONSUMERS=2, BLOCK_K=64, REGISTERS=240, FEW=24, TURNS=True, EARLY=False, LAZY=False),
}


def launch_forward(q, k, v, scale, causal, settings=None, order=None, split=True, programs=None):
    problem = Problem.of(q, k, causal)
    q, scale_log2e = signed(q, scale)
    q, k, v = copyable(q), copyable(k), copyable(v)
    width = 64 if problem.head_dim <= 64 else 128 if problem.head_dim <= 128 else 256
    settings = {**WIDTHS[width], **(settings or {})}
    rows = 64 * settings["CONSUMERS"]
    programs = programs or multiprocessors(q.device)
    key_tiles = -(-problem.keys // settings["BLOCK_K"])
    order, plan = plan_for(
        problem, settings["CONSUMERS"], settings["BLOCK_K"], programs, order, split
    )
    shape = Shape(BLOCK_D=width, ORDER=order, **settings)
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    part, part_lse = log_sum_exp, log_sum_exp
    if plan.share:
        part = q.new_empty(2 * programs * rows, width, dtype=torch.float32)
        part_lse = q.new_empty(2 * programs * rows, dtype=torch.float32)
    with on_device_of(q):
        forward_kernel[(programs,)](
            describe(q, 64, width),
            describe(k, shape.BLOCK_K, width),
            describe(v, shape.BLOCK_K, width),
            describe(output, 64, width),
            log_sum_exp,
            part,
            part_lse,
            *plan,
            problem.heads,
            problem.group,
            problem.queries,
            problem.keys,
            scale_log2e,
            shape,
            num_warps=4,
            maxnreg=128 if shape.CONSUMERS == 3 else 168,
        )
        if plan.share:
            tiles = -(-plan.blocks // shape.CONSUMERS)
            left = plan.batch_heads * tiles - plan.whole
            merge_kernel[(left * rows // MERGED_ROWS,)](
                part,
                part_lse,
                output,
                log_sum_exp,
                output.stride(),
                plan.whole,
                plan.share,
                key_tiles,
                tiles,
                problem.heads,
                problem.queries,
                TILE_ROWS=rows,
                ROWS=MERGED_ROWS,
                HEAD_DIM=problem.head_dim,
                BLOCK_D=width,
            )
    return output, log_sum_exp
