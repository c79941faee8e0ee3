# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""From half precision to e4m3 on the GPU: survey, rotate, find the scales, round, lay out. Bound by memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.fp8.quantized import (
    E4M3,
    KEY_LARGEST,
    KEY_ROWS,
    LARGEST,
    LEAST_SCALE,
    QUERY_LARGEST,
    QUERY_ROWS,
    Quantized,
    key_step,
    padded_rows,
)
from kernels.fp8.rotation import rotation_on
from kernels.fp8.survey import load_rows, survey
from kernels.tiles import head_pointer, on_device_of

VALUE_LARGEST = tl.constexpr(LARGEST)
LEAST = tl.constexpr(LEAST_SCALE)

PROGRAMS = 128
"""So many at least quantise rows, where there are blocks for them. Each takes more after each other where there are
more, up to 16 at head_dim 128: it reads the rotation once for all."""

VALUE_ROWS = 128


@triton.jit(do_not_specialize=["tokens", "times"])
def rows_kernel(
    source_ptr, rotation_ptr, turned_ptr, target_ptr, scale_ptr, offset_ptr, strides,
    heads, group, tokens, rows, times, factor, largest,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, ROTATE: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`times` blocks of BLOCK rows, rotated and times `factor` -> e4m3 up to `largest`, and their scales.

    The centre at `turned_ptr` is rotated already: keys lose it, and of QUERIES the product with it goes to
    `offset_ptr`. Grid: [ceil(rows / BLOCK / times) * batch * heads].
    """
    blocks = rows // BLOCK
    programs = tl.cdiv(blocks, times)
    batch_head = (tl.program_id(0) // programs).to(tl.int64)
    first = tl.program_id(0) % programs * times
    column = tl.arange(0, HEAD_DIM)
    head = head_pointer(source_ptr, strides, batch_head // heads, batch_head % heads)
    turned = tl.load(turned_ptr + batch_head // group * HEAD_DIM + column)[None, :]
    if ROTATE:
        rotation = tl.load(rotation_ptr + column[:, None] * HEAD_DIM + column[None, :])
    for block in range(first, tl.minimum(first + times, blocks)):
        row = block * BLOCK + tl.arange(0, BLOCK)
        x = load_rows(head, row, tokens, strides, HEAD_DIM)
        x = tl.dot(x, rotation) if ROTATE else x.to(tl.float32)
        if QUERIES:
            offset = tl.sum(x * turned, 1) * (factor * tl.abs(factor))
            tl.store(offset_ptr + batch_head * rows + row, offset)
        else:
            x = tl.where((row < tokens)[:, None], x - turned, 0.0)
        x *= factor
        scale = tl.maximum(tl.max(tl.abs(x)) / largest, LEAST)
        tl.store(scale_ptr + batch_head * blocks + block, scale)
        target = target_ptr + (batch_head * rows + row)[:, None] * HEAD_DIM + column[None, :]
        tl.store(target, (x * (1.0 / scale)).to(tl.float8e4nv))


@triton.jit(do_not_specialize=["tokens"])
def values_kernel(
    v_ptr, centre_ptr, reach_ptr, scale_ptr, target_ptr, strides, heads, tokens, rows,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK keys of v -> e4m3, transposed, in `key_order`. Grid: [blocks * batch * kv_heads]."""
    blocks = rows // BLOCK
    # From the last to the first: what the survey read last is still in L2.
    number = tl.num_programs(0) - 1 - tl.program_id(0)
    batch_head = (number // blocks).to(tl.int64)
    first = number % blocks * BLOCK
    place = first + tl.arange(0, BLOCK)
    inside = place % 16
    row = place - inside + inside // 4 * 2 + inside % 2 + inside // 2 % 2 * 8
    channel = batch_head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    head = head_pointer(v_ptr, strides, batch_head // heads, batch_head % heads)
    v = load_rows(head, row, tokens, strides, HEAD_DIM).to(tl.float32)
    v = tl.where((row < tokens)[:, None], v - tl.load(centre_ptr + channel)[None, :], 0.0)
    scale = tl.maximum(tl.load(reach_ptr + channel) / VALUE_LARGEST, LEAST)
    if first == 0:
        tl.store(scale_ptr + channel, scale)
    numbers = tl.trans((v * (1.0 / scale)[None, :]).to(tl.float8e4nv))
    tl.store(target_ptr + channel[:, None] * rows + place[None, :], numbers)


def quantize_on_gpu(
    q: Tensor, k: Tensor, v: Tensor, rotate: bool, centre: bool, negate: bool
) -> Quantized:
    """q, k, v as in `kernels.attention`, on one GPU, in half precision. Five launches."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    factor = head_dim**-0.5 if rotate else 1.0
    group = heads // kv_heads
    rotation = rotation_on(q.device, q.dtype, head_dim) if rotate else None
    with on_device_of(q):
        turned, of_values, reach = survey(k, v, key_step(keys), centre, rotation)
        v8, v_scale = values_quantized(v, of_values, reach)
        q8, q_scale, offset = rows_quantized(
            q, QUERY_ROWS, rotation, turned, group, -factor if negate else factor
        )
        k8, k_scale, _ = rows_quantized(k, KEY_ROWS, rotation, turned, 1, factor)
    return Quantized(
        q8, k8, v8, q_scale, k_scale, v_scale, offset, of_values,
        batch, heads, kv_heads, queries, keys, rotate, centre,
    )  # fmt: skip


def rows_quantized(
    x: Tensor, block: int, rotation: Tensor | None, turned: Tensor, group: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """q, or k if in blocks of keys -> numbers, scales, and of q the products with the centre."""
    batch, heads, tokens, head_dim = x.shape
    rows, count = padded_rows(tokens), batch * heads
    numbers = torch.empty(count, rows, head_dim, dtype=E4M3, device=x.device)
    scale = torch.empty(count, rows // block, device=x.device)
    queries = block == QUERY_ROWS
    offset = torch.empty(count, rows, device=x.device) if queries else scale
    blocks = rows // block
    times = min(head_dim // 8, 2 ** (max(1, count * blocks // PROGRAMS).bit_length() - 1))
    rows_kernel[(count * -(-blocks // times),)](
        x, x if rotation is None else rotation, turned, numbers, scale, offset, x.stride(),
        heads, group, tokens, rows, times, factor, QUERY_LARGEST if queries else KEY_LARGEST,
        HEAD_DIM=head_dim, BLOCK=block, ROTATE=rotation is not None, QUERIES=queries,
        num_warps=4 if queries and head_dim < 256 else 8, num_stages=3 if head_dim < 256 else 1,
    )  # fmt: skip
    return numbers, scale, offset


def values_quantized(v: Tensor, centre: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """v, what its channels lose, and how far from it they reach -> numbers, scales."""
    batch, heads, tokens, head_dim = v.shape
    rows, count = padded_rows(tokens), batch * heads
    scale = torch.empty_like(reach)
    numbers = torch.empty(count, head_dim, rows, dtype=E4M3, device=v.device)
    values_kernel[(count * rows // VALUE_ROWS,)](
        v, centre, reach, scale, numbers, v.stride(), heads, tokens, rows,
        HEAD_DIM=head_dim, BLOCK=VALUE_ROWS, num_warps=4 if head_dim < 256 else 8,
    )  # fmt: skip
    return numbers, scale
