# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""From half precision to e4m3 on the GPU: rotate, find the scales, round, lay out. Bound by memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.fp8.quantized import CENTRE_KEYS, E4M3, KEY_ROWS, QUERY_ROWS, Quantized, padded_rows
from kernels.fp8.rotation import rotation_on
from kernels.tiles import head_pointer, on_device_of

LARGEST = tl.constexpr(448.0)
TINY = tl.constexpr(1e-30)
"""Divided by instead of zero, where a whole block is zero."""


@triton.jit
def centre_kernel(
    k_ptr, centre_ptr, strides, heads, tokens, sampled,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mean of `sampled` keys of a head, evenly spread. Grid: [batch * kv_heads]."""
    batch_head = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, HEAD_DIM)
    head = head_pointer(k_ptr, strides, batch_head // heads, batch_head % heads)
    total = tl.zeros([HEAD_DIM], tl.float32)
    for first in range(0, sampled, BLOCK):
        place = first + tl.arange(0, BLOCK)
        row = place.to(tl.int64) * tokens // sampled
        pointers = head + row[:, None] * strides[2] + column[None, :] * strides[3]
        total += tl.sum(
            tl.load(pointers, mask=(place < sampled)[:, None], other=0.0).to(tl.float32), 0
        )
    tl.store(centre_ptr + batch_head * HEAD_DIM + column, total / sampled)


@triton.jit
def rows_kernel(
    source_ptr, rotation_ptr, centre_ptr, target_ptr, scale_ptr, offset_ptr, strides, heads, group, tokens, rows,
    factor, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, ROTATE: tl.constexpr, CENTRE: tl.constexpr,
):  # fmt: skip
    """BLOCK rows, times `factor` and rotated -> e4m3 and their scale. Grid: [blocks * batch * heads].

    CENTRE "keys": without the centre; "queries": their product with it goes to `offset_ptr`.
    """
    blocks = rows // BLOCK
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD_DIM)
    head = head_pointer(source_ptr, strides, batch_head // heads, batch_head % heads)
    pointers = head + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3]
    inside = (row < tokens)[:, None]
    x = tl.load(pointers, mask=inside, other=0.0)
    sign = tl.where(factor < 0, -1.0, 1.0)
    if CENTRE is not None:
        centre = tl.load(centre_ptr + batch_head // group * HEAD_DIM + column)[None, :]
        if CENTRE == "queries":
            tl.store(
                offset_ptr + batch_head * rows + row, tl.sum(x.to(tl.float32) * centre, 1) * sign
            )
        else:
            x = tl.where(inside, x.to(tl.float32) - centre, 0.0).to(x.dtype)
    if ROTATE:
        rotation = tl.load(rotation_ptr + column[:, None] * HEAD_DIM + column[None, :])
        x = tl.dot(x, rotation)
    x = x.to(tl.float32) * factor
    scale = tl.maximum(tl.max(tl.abs(x)) / LARGEST, TINY)
    tl.store(scale_ptr + tl.program_id(0), scale)
    target = target_ptr + (batch_head * rows + row)[:, None] * HEAD_DIM + column[None, :]
    tl.store(target, (x / scale).to(tl.float8e4nv))


@triton.jit
def largest_kernel(
    v_ptr, largest_ptr, strides, heads, tokens, blocks, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr
):
    """The largest |v| of each channel, into zeros. A maximum comes out the same in any order."""
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD_DIM)
    head = head_pointer(v_ptr, strides, batch_head // heads, batch_head % heads)
    pointers = head + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3]
    v = tl.load(pointers, mask=(row < tokens)[:, None], other=0.0).to(tl.float32)
    tl.atomic_max(largest_ptr + batch_head * HEAD_DIM + column, tl.max(tl.abs(v), 0))


@triton.jit
def values_kernel(
    v_ptr, largest_ptr, scale_ptr, target_ptr, strides, heads, tokens, rows,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK keys of v -> e4m3, transposed, in `key_order`. Grid: [blocks * batch * kv_heads]."""
    blocks = rows // BLOCK
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * BLOCK
    place = tl.arange(0, BLOCK)
    inside = place % 16
    row = first + place - inside + inside // 4 * 2 + inside % 2 + inside // 2 % 2 * 8
    column = tl.arange(0, HEAD_DIM)
    head = head_pointer(v_ptr, strides, batch_head // heads, batch_head % heads)
    pointers = head + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3]
    v = tl.load(pointers, mask=(row < tokens)[:, None], other=0.0).to(tl.float32)
    largest = tl.load(largest_ptr + batch_head * HEAD_DIM + column)
    scale = tl.maximum(largest / LARGEST, TINY)
    if first == 0:
        tl.store(scale_ptr + batch_head * HEAD_DIM + column, scale)
    v = tl.trans((v / scale[None, :]).to(tl.float8e4nv))
    channel = (batch_head * HEAD_DIM + column)[:, None] * rows
    tl.store(target_ptr + channel + (first + place)[None, :], v)


def quantize_on_gpu(
    q: Tensor, k: Tensor, v: Tensor, rotate: bool, centre: bool, negate: bool
) -> Quantized:
    """q, k, v as in `kernels.attention`, on one GPU, in half precision. Five launches."""
    batch, heads, queries = q.shape[:3]
    kv_heads, keys = k.shape[1], k.shape[2]
    offset = torch.zeros(batch * heads, padded_rows(queries), dtype=torch.float32, device=q.device)
    with on_device_of(q):
        middle = centre_of(k) if centre else None
        sign = -1 if negate else 1
        q8, q_scale = rows_quantized(
            q, QUERY_ROWS, rotate, "queries", middle, offset, heads // kv_heads, sign
        )
        k8, k_scale = rows_quantized(k, KEY_ROWS, rotate, "keys", middle, offset, 1, 1)
        v8, v_scale = values_quantized(v)
    return Quantized(
        q8, k8, v8, q_scale, k_scale, v_scale, offset,
        batch, heads, kv_heads, queries, keys, rotate, centre,
    )  # fmt: skip


def centre_of(k: Tensor, block: int = 64) -> Tensor:
    batch, heads, tokens, head_dim = k.shape
    centre = torch.empty(batch * heads, head_dim, dtype=torch.float32, device=k.device)
    centre_kernel[(len(centre),)](
        k,
        centre,
        k.stride(),
        heads,
        tokens,
        min(tokens, CENTRE_KEYS),
        HEAD_DIM=head_dim,
        BLOCK=block,
    )
    return centre


def rows_quantized(x, block, rotate, side, centre, offset, group, sign) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, head_dim = x.shape
    rows, count = padded_rows(tokens), batch * heads
    numbers = torch.empty(count, rows, head_dim, dtype=E4M3, device=x.device)
    scale = torch.empty(count, rows // block, dtype=torch.float32, device=x.device)
    rotation = rotation_on(x.device, x.dtype, head_dim)
    rows_kernel[(scale.numel(),)](
        x, rotation, offset if centre is None else centre, numbers, scale, offset, x.stride(), heads, group, tokens, rows,
        sign * (head_dim**-0.5 if rotate else 1.0),
        HEAD_DIM=head_dim, BLOCK=block, ROTATE=rotate, CENTRE=None if centre is None else side, num_warps=4,
    )  # fmt: skip
    return numbers, scale


def values_quantized(v: Tensor, block: int = 128) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, head_dim = v.shape
    rows, count = padded_rows(tokens), batch * heads
    largest = torch.zeros(count, head_dim, dtype=torch.float32, device=v.device)
    scale = torch.empty_like(largest)
    numbers = torch.empty(count, head_dim, rows, dtype=E4M3, device=v.device)
    grid = (count * rows // block,)
    largest_kernel[grid](
        v, largest, v.stride(), heads, tokens, rows // block, HEAD_DIM=head_dim, BLOCK=block
    )
    values_kernel[grid](
        v, largest, scale, numbers, v.stride(), heads, tokens, rows, HEAD_DIM=head_dim, BLOCK=block
    )
    return numbers, scale
