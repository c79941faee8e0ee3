# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The launches of fa3's twin, chosen and cut up as fa3 chooses and cuts its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.fa3 import short
from kernels.fa3.forward import FORMS, form_for
from kernels.fa3.merge import MERGED_ROWS, merge_kernel
from kernels.fa3.schedule import MOST_PARTS, plan_for
from kernels.fa3.twin import MOST_RISE
from kernels.fa3.twin_pieces import forward_kernel, stream_kernel
from kernels.problem import Problem
from kernels.tile_sizes import padded
from kernels.tiles import fold_scale, offsets_are_wide, on_device_of, triton

PROGRAMS = 132
"""One for each multiprocessor of an H100 SXM or an H200."""

ROWS = 64
"""Queries of one group of warps."""


def launch_twin(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, programs: int = PROGRAMS
) -> tuple[Tensor, Tensor]:
    """q, k, v as in `kernels.attention`, nothing empty -> output like q, log_sum_exp [batch, heads, queries].

    programs: of the GPU that is played.
    """
    problem = Problem.of(q, k, causal)
    if not short.takes(problem):
        return launch_pieces(q, k, v, scale, causal, programs)
    if problem.batch * problem.heads * -(-problem.queries // ROWS) <= short.FEW:
        return short.launch_few(q, k, v, scale, causal)  # is in plain Triton itself
    return launch_stream(q, k, v, scale, causal, programs)


def empty_results(q: Tensor) -> tuple[Tensor, Tensor]:
    """Output, laid out [batch, queries, heads, dim] so that joining the heads costs no copy; log-sum-exp."""
    output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    return output, q.new_empty(q.shape[:3], dtype=torch.float32)


def of_tensors(
    q: Tensor, k: Tensor, v: Tensor, output: Tensor, problem: Problem
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that each kernel here takes: strides and sizes, and what its compiler knows."""
    strides = [t.stride() for t in (q, k, v, output)]
    known = {
        "HEAD_DIM": problem.head_dim,
        "BLOCK_D": padded(problem.head_dim),
        "CAUSAL": problem.causal,
        "WIDE": offsets_are_wide(q, k, v, output),
    }
    return [*strides, problem.heads, problem.group, problem.queries, problem.keys], known


def launch_pieces(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, programs: int
) -> tuple[Tensor, Tensor]:
    """As `kernels.fa3.forward.launch_forward`."""
    problem = Problem.of(q, k, causal)
    q, scale_log2e, negate = fold_scale(q, scale)
    output, log_sum_exp = empty_results(q)
    sizes, known = of_tensors(q, k, v, output, problem)
    width = next(width for width in FORMS if problem.head_dim <= width)
    form = form_for(problem, width, programs)
    order, plan = plan_for(problem, form.CONSUMERS, form.BLOCK_K, programs)
    rows = form.CONSUMERS * ROWS
    part, part_lse = log_sum_exp, log_sum_exp
    if plan.share:
        part = q.new_empty(2 * programs * rows, width, dtype=torch.float32)
        part_lse = q.new_empty(2 * programs * rows, dtype=torch.float32)
    known["BLOCK_D"] = width
    with on_device_of(q):
        forward_kernel[(programs,)](
            q, k, v, output, log_sum_exp, part, part_lse, *sizes, plan, scale_log2e, **known,
            CONSUMERS=form.CONSUMERS, BLOCK_Q=padded(rows), BLOCK_K=form.BLOCK_K, ORDER=order,
            NEGATE=negate, MOST_RISE=MOST_RISE,
        )  # fmt: skip
        if plan.share:
            tiles = -(-plan.blocks // form.CONSUMERS)
            left = plan.batch_heads * tiles - plan.whole
            merge_kernel[(left * rows // MERGED_ROWS[width],)](
                part, part_lse, output, log_sum_exp, plan.whole, plan.share,
                -(-problem.keys // form.BLOCK_K), tiles, problem.heads, problem.queries,
                TILE_ROWS=rows, ROWS=MERGED_ROWS[width], HEAD_DIM=problem.head_dim, BLOCK_D=width,
                MOST_PARTS=MOST_PARTS,
            )  # fmt: skip
    return output, log_sum_exp


def launch_stream(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, programs: int
) -> tuple[Tensor, Tensor]:
    """As `kernels.fa3.short.launch_many`."""
    problem = Problem.of(q, k, causal)
    q, scale_log2e, negate = fold_scale(q, scale)
    output, log_sum_exp = empty_results(q)
    sizes, known = of_tensors(q, k, v, output, problem)
    blocks = triton.cdiv(problem.queries, ROWS)
    parts = short.parts_of(problem.batch * problem.heads, blocks, programs)
    rows = triton.cdiv(blocks, parts) * ROWS
    with on_device_of(q):
        stream_kernel[(problem.batch * problem.heads * parts,)](
            q, k, v, output, log_sum_exp, *sizes, parts, scale_log2e, **known,
            ROWS=rows, BLOCK_Q=padded(rows), BLOCK_K=128, NEGATE=negate,
        )  # fmt: skip
    return output, log_sum_exp
