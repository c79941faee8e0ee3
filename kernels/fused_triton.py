# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""The layers of `kernels.fused` in Triton."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.tiles import on_device_of, tl, triton


@dataclass(frozen=True)
class DenseTiles:
    """A tile of the product, and how the compiler spreads it over warps and pipeline stages."""

    block_rows: int
    block_columns: int
    block_inner: int
    warps: int
    stages: int


GROUP = 8
"""Tiles of rows that follow one another before the next tiles of columns, so that both stay in L2."""

ENOUGH = 80
"""Large tiles that occupy a GPU well enough."""

NORM_ROWS = 2
"""Rows of one program of LayerNorm, a warp each."""


@triton.jit
def place_of_tile(
    rows, columns, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, GROUP: tl.constexpr
):
    """Which tile this program has: GROUP tiles of rows share a tile of columns. -> first row, first column"""
    program, row_tiles = tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS)
    in_group = GROUP * tl.cdiv(columns, BLOCK_COLUMNS)
    first = program // in_group * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    row_tile = first + program % in_group % height
    column_tile = program % in_group // height
    return row_tile * BLOCK_ROWS, column_tile * BLOCK_COLUMNS


@triton.jit
def linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    scale_ptr,
    residual_ptr,
    output_ptr,
    rows,
    columns,
    inner,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    GROUP: tl.constexpr,
):
    """output = residual + scale * (x W^T + b), one tile of it.

    x [rows, inner], W [columns, inner], residual and output [rows, columns], all contiguous.
    """
    first_row, first_column = place_of_tile(rows, columns, BLOCK_ROWS, BLOCK_COLUMNS, GROUP)
    row = first_row + tl.arange(0, BLOCK_ROWS)
    column = first_column + tl.arange(0, BLOCK_COLUMNS)
    place = tl.arange(0, BLOCK_INNER)
    # Rows beyond the last read the last one: no mask in the loop, and nothing of them is stored.
    x = x_ptr + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * inner + place[None, :]
    weight = weight_ptr + column[:, None] * inner + place[None, :]
    product = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    for _ in range(0, inner, BLOCK_INNER):
        product = tl.dot(tl.load(x), tl.trans(tl.load(weight)), product, input_precision="ieee")
        x += BLOCK_INNER
        weight += BLOCK_INNER
    bias = tl.load(bias_ptr + column).to(tl.float32)
    scale = tl.load(scale_ptr + column).to(tl.float32)
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    exists = row[:, None] < rows
    residual = tl.load(residual_ptr + at, mask=exists, other=0.0).to(tl.float32)
    result = residual + scale[None, :] * (product + bias[None, :])
    tl.store(output_ptr + at, result.to(output_ptr.dtype.element_ty), mask=exists)


@triton.jit
def norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    output_ptr,
    rows,
    eps,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """LayerNorm of BLOCK_ROWS rows of x [rows, WIDTH], contiguous."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_WIDTH)
    inside = column < WIDTH
    at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    exists = (row[:, None] < rows) & inside[None, :]
    x = tl.load(x_ptr + at, mask=exists, other=0.0).to(tl.float32)
    mean = tl.sum(x, 1) / WIDTH
    away = tl.where(inside[None, :], x - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(away * away, 1) / WIDTH + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    result = away * scale[:, None] * weight[None, :] + bias[None, :]
    tl.store(output_ptr + at, result.to(output_ptr.dtype.element_ty), mask=exists)


def launch_linear(
    tokens: Tensor,
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
    residual: Tensor,
    *,
    tiles: DenseTiles | None = None,
) -> Tensor:
    """As `kernels.fused.linear_add`. Both widths are multiples of 64; what is not contiguous is copied."""
    columns, inner = weight.shape
    x = tokens.reshape(-1, inner).contiguous()
    tiles = tiles or tiles_for(len(x), columns, inner)
    output = x.new_empty(residual.shape)
    programs = triton.cdiv(len(x), tiles.block_rows) * (columns // tiles.block_columns)
    with on_device_of(x):
        linear_kernel[(programs,)](
            x,
            weight.contiguous(),
            bias,
            scale,
            residual.contiguous(),
            output,
            len(x),
            columns,
            inner,
            BLOCK_ROWS=tiles.block_rows,
            BLOCK_COLUMNS=tiles.block_columns,
            BLOCK_INNER=tiles.block_inner,
            GROUP=GROUP,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return output


def tiles_for(rows: int, columns: int, inner: int) -> DenseTiles:
    """Large tiles where there are enough to occupy a GPU, else small ones; all fit in 99 KB.

    Timed on an H200 with the widths of ViT-S, at 257, 1370, 4096, 5477 and 21905 rows: 33 large tiles are
    slower than small ones, 96 are faster.
    """
    if columns % 128 == 0 and triton.cdiv(rows, 128) * (columns // 128) >= ENOUGH:
        return DenseTiles(128, 128, 64, 8, 3)
    return DenseTiles(64, 64, 128, 4, 3) if inner % 128 == 0 else DenseTiles(64, 64, 64, 4, 4)


def launch_norm(tokens: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """As `kernels.fused.layer_norm`; what is not contiguous is copied."""
    width = len(weight)
    x = tokens.reshape(-1, width).contiguous()
    output = x.new_empty(tokens.shape)
    with on_device_of(x):
        norm_kernel[(triton.cdiv(len(x), NORM_ROWS),)](
            x,
            weight,
            bias,
            output,
            len(x),
            eps,
            WIDTH=width,
            BLOCK_WIDTH=triton.next_power_of_2(width),
            BLOCK_ROWS=NORM_ROWS,
            num_warps=NORM_ROWS,
        )
    return output
