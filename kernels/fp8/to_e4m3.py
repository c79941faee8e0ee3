# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""From half precision to e4m3 on the GPU: rotate, find the scales, round, lay out. Bound by memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.fp8.quantized import (
    E4M3,
    KEY_ROWS,
    LEAST_SCALE,
    QUERY_ROWS,
    Quantized,
    centre_of,
    padded_rows,
)
from kernels.fp8.rotation import rotation_on
from kernels.tiles import head_pointer, on_device_of

LARGEST = tl.constexpr(448.0)
LEAST = tl.constexpr(LEAST_SCALE)

# `tokens` is not specialised below: one token then runs the same code as any other number.


@triton.jit
def load_rows(head, row, tokens, strides, HEAD_DIM: tl.constexpr):
    """These rows of a head, zero beyond its tokens. -> [rows, HEAD_DIM]"""
    column = tl.arange(0, HEAD_DIM)
    pointers = head + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3]
    return tl.load(pointers, mask=(row < tokens)[:, None], other=0.0)


@triton.jit(do_not_specialize=["tokens"])
def rows_kernel(
    source_ptr, rotation_ptr, centre_ptr, target_ptr, scale_ptr, offset_ptr, strides,
    heads, group, tokens, rows, factor,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, ROTATE: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """BLOCK rows, times `factor` and rotated -> e4m3, and their scale. Grid: [batch * heads * blocks].

    Keys lose their centre; of QUERIES the product with it goes to `offset_ptr`.
    """
    blocks = rows // BLOCK
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD_DIM)
    head = head_pointer(source_ptr, strides, batch_head // heads, batch_head % heads)
    centre = tl.load(centre_ptr + batch_head // group * HEAD_DIM + column)[None, :]
    x = load_rows(head, row, tokens, strides, HEAD_DIM)
    if QUERIES:
        sign = tl.where(factor < 0, -1.0, 1.0)
        offset = tl.sum(x.to(tl.float32) * centre, 1) * sign
        tl.store(offset_ptr + batch_head * rows + row, offset)
    else:
        x = tl.where((row < tokens)[:, None], x.to(tl.float32) - centre, 0.0).to(x.dtype)
    if ROTATE:
        rotation = tl.load(rotation_ptr + column[:, None] * HEAD_DIM + column[None, :])
        x = tl.dot(x, rotation)
    x = x.to(tl.float32) * factor
    scale = tl.maximum(tl.max(tl.abs(x)) / LARGEST, LEAST)
    tl.store(scale_ptr + tl.program_id(0), scale)
    target = target_ptr + (batch_head * rows + row)[:, None] * HEAD_DIM + column[None, :]
    tl.store(target, (x / scale).to(tl.float8e4nv))


@triton.jit(do_not_specialize=["tokens"])
def largest_kernel(
    v_ptr, centre_ptr, largest_ptr, strides, heads, tokens, blocks,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest |v - centre| of each channel, into zeros. A maximum comes out the same in any order."""
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    place = batch_head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    head = head_pointer(v_ptr, strides, batch_head // heads, batch_head % heads)
    v = load_rows(head, row, tokens, strides, HEAD_DIM).to(tl.float32)
    v = tl.where((row < tokens)[:, None], v - tl.load(centre_ptr + place)[None, :], 0.0)
    tl.atomic_max(largest_ptr + place, tl.max(tl.abs(v), 0))


@triton.jit(do_not_specialize=["tokens"])
def values_kernel(
    v_ptr, centre_ptr, largest_ptr, scale_ptr, target_ptr, strides, heads, tokens, rows,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK keys of v -> e4m3, transposed, in `key_order`. Grid: [blocks * batch * kv_heads]."""
    blocks = rows // BLOCK
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * BLOCK
    place = first + tl.arange(0, BLOCK)
    inside = place % 16
    row = place - inside + inside // 4 * 2 + inside % 2 + inside // 2 % 2 * 8
    channel = batch_head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    head = head_pointer(v_ptr, strides, batch_head // heads, batch_head % heads)
    v = load_rows(head, row, tokens, strides, HEAD_DIM).to(tl.float32)
    v = tl.where((row < tokens)[:, None], v - tl.load(centre_ptr + channel)[None, :], 0.0)
    scale = tl.maximum(tl.load(largest_ptr + channel) / LARGEST, LEAST)
    if first == 0:
        tl.store(scale_ptr + channel, scale)
    numbers = tl.trans((v / scale[None, :]).to(tl.float8e4nv))
    tl.store(target_ptr + channel[:, None] * rows + place[None, :], numbers)


def quantize_on_gpu(
    q: Tensor, k: Tensor, v: Tensor, rotate: bool, centre: bool, negate: bool
) -> Quantized:
    """q, k, v as in `kernels.attention`, on one GPU, in half precision. Four launches, and two means."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    factor = head_dim**-0.5 if rotate else 1.0
    group = heads // kv_heads
    with on_device_of(q):
        of_keys, of_values = vectors_taken(k, centre), vectors_taken(v, centre)
        q8, q_scale, offset = rows_quantized(
            q, QUERY_ROWS, rotate, of_keys, group, -factor if negate else factor
        )
        k8, k_scale, _ = rows_quantized(k, KEY_ROWS, rotate, of_keys, 1, factor)
        v8, v_scale = values_quantized(v, of_values)
    return Quantized(
        q8, k8, v8, q_scale, k_scale, v_scale, offset, of_values,
        batch, heads, kv_heads, queries, keys, rotate, centre,
    )  # fmt: skip


def vectors_taken(x: Tensor, centre: bool) -> Tensor:
    """What every row of a head loses: its mean, or zero. -> float32 [batch * heads, head_dim]"""
    batch, heads, _, head_dim = x.shape
    if not centre:
        return torch.zeros(batch * heads, head_dim, device=x.device)
    return centre_of(x).reshape(batch * heads, head_dim).contiguous()


def rows_quantized(
    x: Tensor, block: int, rotate: bool, centre: Tensor, group: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """q, or k if in blocks of keys -> numbers, scales, and of q the products with the centre."""
    batch, heads, tokens, head_dim = x.shape
    rows, count = padded_rows(tokens), batch * heads
    numbers = torch.empty(count, rows, head_dim, dtype=E4M3, device=x.device)
    scale = torch.empty(count, rows // block, device=x.device)
    queries = block == QUERY_ROWS
    offset = torch.empty(count, rows, device=x.device) if queries else scale
    rotation = rotation_on(x.device, x.dtype, head_dim)
    rows_kernel[(scale.numel(),)](
        x, rotation, centre, numbers, scale, offset, x.stride(), heads, group, tokens, rows, factor,
        HEAD_DIM=head_dim, BLOCK=block, ROTATE=rotate, QUERIES=queries,
        num_warps=4 if head_dim < 256 else 8,
    )  # fmt: skip
    return numbers, scale, offset


def values_quantized(v: Tensor, centre: Tensor, block: int = 128) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, head_dim = v.shape
    rows, count = padded_rows(tokens), batch * heads
    largest = torch.zeros(count, head_dim, device=v.device)
    scale = torch.empty_like(largest)
    # Zeroed, though `values_kernel` writes every number: of what were left out a byte 0x7F would be NaN, and the
    # weight 0 of a key behind the last does not hide that.
    numbers = torch.zeros(count, head_dim, rows, dtype=E4M3, device=v.device)
    grid = (count * rows // block,)
    largest_kernel[grid](
        v, centre, largest, v.stride(), heads, tokens, rows // block,
        HEAD_DIM=head_dim, BLOCK=block,
    )  # fmt: skip
    values_kernel[grid](
        v, centre, largest, scale, numbers, v.stride(), heads, tokens, rows,
        HEAD_DIM=head_dim, BLOCK=block,
    )  # fmt: skip
    return numbers, scale
