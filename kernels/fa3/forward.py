"""FlashAttention-3, forward: what is launched for a problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from kernels.fa3.forward_kernel import forward_kernel
from kernels.fa3.merge import MERGED_ROWS, REGISTERS, WARPS, merge_kernel
from kernels.fa3.schedule import MOST_PARTS, ROWS, Plan, plan_for
from kernels.hopper import copyable, describe, launch, multiprocessors
from kernels.problem import Problem
from kernels.tiles import on_device_of

QUERY_ROWS = ROWS.value


@dataclass(frozen=True)
class Form:
    """What the forward kernel is compiled for."""

    CONSUMERS: int  # warpgroups of 64 queries each
    BLOCK_K: int
    BLOCK_D: int
    Q_STAGES: int  # tiles of queries that are in shared memory at once
    REGISTERS: int  # of a thread of a consumer
    FEW: int  # of a thread of the producer
    EARLY: bool  # whether exponentials are kept ahead of the end of the product before
    ORDER: int = 0  # of the pieces, see `schedule`


FORMS = {
    64: Form(3, 128, 64, 2, 160, 32, EARLY=False),
    128: Form(2, 128, 128, 2, 240, 24, EARLY=True),
    256: Form(2, 32, 256, 1, 240, 24, EARLY=True),
}
"""By head_dim, padded: the fastest of those that were tried on an H200.

At 64 no overlap inside a warpgroup pays: three of them overlap each other. At 128 there is room for two, each of
which also works out weights while its own product runs. 256 was made to fit; no other form was timed.
"""

FEW_QUERIES = Form(1, 128, 64, 1, 240, 24, EARLY=False)
"""At 64, where blocks of 64 queries find a multiprocessor each: none is split, and nothing is merged."""
MOST_KEYS_OF_FEW = 1536
"""Timed up to 1,370 keys; that splitting them pays where there are more is an estimate."""

MOST_REGISTERS = {3: 128, 2: 168, 1: 128}
"""Consumers -> registers of a thread before the producer gives up most of its own."""


def launch_forward(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, split: bool = True
) -> tuple[Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp [batch, heads, queries].

    Copies q for a scale that is not positive, and what TMA cannot read (`kernels.hopper.copyable`).
    split: whether left-over tiles may be split along the keys, which rounds once more.
    """
    problem = Problem.of(q, k, causal)
    q, scale_log2e = with_positive_scale(q, scale)
    q, k, v = copyable(q), copyable(k), copyable(v)
    width = 64 if problem.head_dim <= 64 else 128 if problem.head_dim <= 128 else 256
    programs = multiprocessors(q.device)
    form, plan = form_and_plan(problem, width, programs, split)
    # Laid out [batch, queries, heads, dim], so that joining the heads again costs no copy.
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    part, part_lse = log_sum_exp, log_sum_exp
    if plan.share:
        rows = 2 * programs * form.CONSUMERS * QUERY_ROWS
        part = q.new_empty(rows, width, dtype=torch.float32)
        part_lse = q.new_empty(rows, dtype=torch.float32)
    with on_device_of(q):
        launch(
            forward_kernel,
            (form, q.dtype, q.device),
            programs,
            describe(q, QUERY_ROWS, width),
            describe(k, form.BLOCK_K, width),
            describe(v, form.BLOCK_K, width),
            describe(output, QUERY_ROWS, width),
            log_sum_exp,
            part,
            part_lse,
            *plan,
            problem.heads,
            problem.group,
            problem.queries,
            problem.keys,
            scale_log2e,
            form,
            num_warps=4,
            maxnreg=MOST_REGISTERS[form.CONSUMERS],
        )
        if plan.share:
            merge(part, part_lse, output, log_sum_exp, form, plan, problem.keys)
    return output, log_sum_exp


def with_positive_scale(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """-> q and scale * log2(e), positive: the running maximum is taken of raw scores."""
    if scale > 0:
        return q, scale * math.log2(math.e)
    if scale == 0:
        return torch.zeros_like(q), math.log2(math.e)
    return -q, -scale * math.log2(math.e)


def form_for(problem: Problem, width: int, multiprocessors: int) -> Form:
    """The form of this width, or the one for few queries."""
    blocks = problem.batch * problem.heads * -(-problem.queries // QUERY_ROWS)
    if width != 64 or problem.causal or blocks > multiprocessors or problem.keys > MOST_KEYS_OF_FEW:
        return FORMS[width]
    return FEW_QUERIES


@lru_cache(maxsize=1024)
def form_and_plan(
    problem: Problem, width: int, multiprocessors: int, split: bool
) -> tuple[Form, Plan]:
    """What the kernel is compiled for, and what its programs take."""
    form = form_for(problem, width, multiprocessors)
    order, plan = plan_for(problem, form.CONSUMERS, form.BLOCK_K, multiprocessors, split)
    if problem.causal and width == 64:
        # With two tiles of queries at once 4 % slower at (1, 16, 16384, 64), though not elsewhere.
        form = replace(form, Q_STAGES=1)
    return replace(form, ORDER=order), plan


def merge(
    part: Tensor, part_lse: Tensor, output: Tensor, lse: Tensor, form: Form, plan: Plan, keys: int
) -> None:
    """Fill the rows of output and lse whose keys were split."""
    _, heads, queries, head_dim = output.shape
    tiles = -(-plan.blocks // form.CONSUMERS)
    tile_rows, rows = form.CONSUMERS * QUERY_ROWS, MERGED_ROWS[form.BLOCK_D]
    split_tiles = plan.batch_heads * tiles - plan.whole
    launch(
        merge_kernel,
        (form, head_dim, output.dtype, output.device),
        split_tiles * tile_rows // rows,
        part,
        part_lse,
        output,
        lse,
        plan.whole,
        plan.share,
        -(-keys // form.BLOCK_K),
        tiles,
        heads,
        queries,
        tile_rows,
        rows,
        head_dim,
        form.BLOCK_D,
        MOST_PARTS,
        num_warps=WARPS,
        maxnreg=REGISTERS,
    )
