# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Before quantising, on the GPU: the means of keys and of values, and how far a channel's values reach from theirs.

Sums are taken in the same order every time: part by part, and then over the parts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.tiles import head_pointer

ROWS, TIMES = 32, 16
"""Tokens that a program of the survey reads at once, and how often."""

PARTS_AT_ONCE = 16

# `tokens` and what follows from it are not specialised, here and in `to_e4m3`: one token runs the same code as any other
# number. With one compiled in, most of a word of e4m3 is the same zero, and the ptxas of CUDA 12.8 left half of
# such words unwritten: what the register held before was stored as v, NaN at times, and 0 times NaN is NaN.


@triton.jit
def load_rows(head, row, tokens, strides, HEAD_DIM: tl.constexpr):
    """These rows of a head, zero beyond its tokens. -> [rows, HEAD_DIM]"""
    column = tl.arange(0, HEAD_DIM)
    pointers = head + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3]
    return tl.load(pointers, mask=(row < tokens)[:, None], other=0.0)


@triton.jit
def survey_part(
    head, strides, first, step, tokens, part_ptr,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, TIMES: tl.constexpr, RANGE: tl.constexpr,
):  # fmt: skip
    """Sum, and with RANGE least and largest, of ROWS * TIMES tokens, each step-th -> three rows of HEAD_DIM."""
    total = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    low = tl.full([ROWS, HEAD_DIM], float("inf"), tl.float32)
    high = tl.full([ROWS, HEAD_DIM], float("-inf"), tl.float32)
    for time in tl.static_range(TIMES):
        row = (first + time * ROWS + tl.arange(0, ROWS)) * step
        # In place of those behind the last token the last again, which moves no least and no largest.
        x = load_rows(head, tl.minimum(row, tokens - 1), tokens, strides, HEAD_DIM).to(tl.float32)
        total += tl.where((row < tokens)[:, None], x, 0.0)
        if RANGE:
            low = tl.minimum(low, x)
            high = tl.maximum(high, x)
    part = part_ptr + tl.arange(0, HEAD_DIM)
    tl.store(part, tl.sum(total, 0))
    if RANGE:
        tl.store(part + HEAD_DIM, tl.min(low, 0))
        tl.store(part + 2 * HEAD_DIM, tl.max(high, 0))


@triton.jit(do_not_specialize=["tokens", "step", "parts"])
def survey_kernel(
    k_ptr, v_ptr, found_ptr, k_strides, v_strides, heads, tokens, step, parts,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, TIMES: tl.constexpr,
):  # fmt: skip
    """-> found [2, batch * heads, parts, 3, HEAD_DIM], first of all values, then of each step-th key its sums.

    Grid: [batch * heads * parts, 2].
    """
    batch_head = (tl.program_id(0) // parts).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    first = tl.program_id(0) % parts * ROWS * TIMES
    part = tl.program_id(1) * tl.num_programs(0).to(tl.int64) + tl.program_id(0)
    part_ptr = found_ptr + part * 3 * HEAD_DIM
    if tl.program_id(1) == 0:
        start = head_pointer(v_ptr, v_strides, batch, head)
        survey_part(start, v_strides, first, 1, tokens, part_ptr, HEAD_DIM, ROWS, TIMES, True)
    elif first * step < tokens:
        start = head_pointer(k_ptr, k_strides, batch, head)
        survey_part(start, k_strides, first, step, tokens, part_ptr, HEAD_DIM, ROWS, TIMES, False)


@triton.jit(do_not_specialize=["tokens", "sampled", "parts", "key_parts"])
def centre_kernel(
    found_ptr, rotation_ptr, turned_ptr, centre_ptr, reach_ptr, tokens, sampled, parts, key_parts,
    HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CENTRE: tl.constexpr, ROTATE: tl.constexpr,
):  # fmt: skip
    """From the parts to means, or zeros: of keys, times the rotation, and of values, with the largest |v - its mean|.

    Grid: [batch * heads, 2].
    """
    of_keys = tl.program_id(1)
    batch_head = tl.program_id(0)
    end = tl.where(of_keys == 1, key_parts, parts)
    start = (of_keys * tl.num_programs(0) + batch_head).to(tl.int64) * parts
    column = tl.arange(0, HEAD_DIM)
    total = tl.zeros([PARTS, HEAD_DIM], tl.float32)
    low = tl.full([PARTS, HEAD_DIM], float("inf"), tl.float32)
    high = tl.full([PARTS, HEAD_DIM], float("-inf"), tl.float32)
    for first in range(0, end, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part < end)[:, None]
        place = found_ptr + (start + part)[:, None] * 3 * HEAD_DIM + column[None, :]
        total += tl.load(place, mask=there, other=0.0)
        if of_keys == 0:
            low = tl.minimum(low, tl.load(place + HEAD_DIM, there, other=float("inf")))
            high = tl.maximum(high, tl.load(place + 2 * HEAD_DIM, there, other=float("-inf")))
    centre = tl.sum(total, 0) / tl.where(of_keys == 1, sampled, tokens)
    if not CENTRE:
        centre = tl.zeros([HEAD_DIM], tl.float32)
    target = batch_head * HEAD_DIM + column
    if of_keys == 1:
        if ROTATE:
            rotation = tl.load(rotation_ptr + column[:, None] * HEAD_DIM + column[None, :])
            centre = tl.sum(centre[:, None] * rotation.to(tl.float32), 0)
        tl.store(turned_ptr + target, centre)
    else:
        tl.store(centre_ptr + target, centre)
        tl.store(reach_ptr + target, tl.maximum(tl.max(high, 0) - centre, centre - tl.min(low, 0)))


def survey(
    k: Tensor, v: Tensor, step: int, centre: bool, rotation: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """-> mean of each step-th key times the rotation, mean of all values, and the largest |v - its mean|.

    Without `centre` zeros are taken for both means. All float32 [batch * kv_heads, head_dim]. Two launches.
    """
    batch, heads, tokens, head_dim = v.shape
    count, sampled = batch * heads, -(-tokens // step)
    parts, key_parts = -(-tokens // (ROWS * TIMES)), -(-sampled // (ROWS * TIMES))
    found = torch.empty(2, count, parts, 3, head_dim, device=v.device)
    survey_kernel[(count * parts, 2)](
        k, v, found, k.stride(), v.stride(), heads, tokens, step, parts,
        HEAD_DIM=head_dim, ROWS=ROWS, TIMES=TIMES, num_warps=4 if head_dim < 256 else 8,
    )  # fmt: skip
    turned, of_values, reach = torch.empty(3, count, head_dim, device=v.device)
    centre_kernel[(count, 2)](
        found, found if rotation is None else rotation, turned, of_values, reach,
        tokens, sampled, parts, key_parts,
        HEAD_DIM=head_dim, PARTS=PARTS_AT_ONCE, CENTRE=centre, ROTATE=rotation is not None,
        num_warps=8 if head_dim < 256 else 16,
    )  # fmt: skip
    return turned, of_values, reach
