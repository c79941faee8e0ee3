# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Rows and columns of P, and of its gradient dP = dO V^T, on the GPU: all heads at once, in one kernel.

A row and a column are the same work seen from two sides: a few tokens are gathered (queries for rows,
keys for columns) and all tokens of the other side are streamed past them. P and dP differ in one step:
P takes the exponential of its product, dP is the product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.tile_sizes import padded
from kernels.tiles import (
    head_pointer,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    tl,
    triton,
    weights_from_lse,
)

BLOCK_STREAMED = 128
GATHERED_PER_PROGRAM = 16


@triton.jit
def rebuild_kernel(
    gathered_ptr,
    streamed_ptr,
    index_ptr,
    lse_ptr,
    out_ptr,
    gathered_strides,
    streamed_strides,
    lse_strides,
    out_strides,
    heads,
    gathered_group,
    streamed_group,
    picked,
    streamed,
    keys_minus_queries,
    scale_log2e,
    EXPONENTIAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    GATHERS_QUERIES: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: BLOCK_S streamed tokens against a share of the gathered ones, BLOCK_G at a time.

    Writes P where EXPONENTIAL, else the bare product; lse_ptr may then be None.
    """
    streamed_start, _, batch, head = place_of_program(streamed, heads, BLOCK_S)
    gathered_head = head_pointer(gathered_ptr, gathered_strides, batch, head // gathered_group)
    streamed_head = head_pointer(streamed_ptr, streamed_strides, batch, head // streamed_group)
    out_head = head_pointer(out_ptr, out_strides, batch, head)

    streamed_tile = load_tile(
        streamed_head, streamed_start, streamed, streamed_strides[2:],
        HEAD_DIM, BLOCK_S, BLOCK_D, True, WIDE,
    )  # fmt: skip
    token = streamed_start + tl.arange(0, BLOCK_S)[None, :]
    width = tl.arange(0, BLOCK_D)[None, :].to(tl.int64)
    share = tl.cdiv(tl.cdiv(picked, tl.num_programs(1)), BLOCK_G) * BLOCK_G
    first = tl.program_id(1) * share
    for place_start in range(first, tl.minimum(first + share, picked), BLOCK_G):
        place = place_start + tl.arange(0, BLOCK_G)[:, None]
        index = tl.load(index_ptr + place, mask=place < picked, other=0)
        gathered_tile = tl.load(
            gathered_head + index * gathered_strides[2] + width * gathered_strides[3],
            mask=(place < picked) & (width < HEAD_DIM),
            other=0.0,
        )
        if BLOCK_G == 1:
            product = gathered_tile.to(tl.float32) * streamed_tile.to(tl.float32)
            scores = tl.sum(product, 1)[None, :]  # [1, BLOCK_S]
        else:
            scores = tl.dot(gathered_tile, tl.trans(streamed_tile), input_precision="ieee")
        if GATHERS_QUERIES:
            query, key = index, token
        else:
            query, key = token, index
        exists = (place < picked) & (token < streamed)  # [BLOCK_G, BLOCK_S]
        if EXPONENTIAL:
            lse_head = head_pointer(lse_ptr, lse_strides, batch, head)
            lse_place = query.to(tl.int64) * lse_strides[2]
            lse = tl.load(lse_head + lse_place, mask=exists, other=0.0)
            scores = weights_from_lse(scores, lse, scale_log2e)
        if CAUSAL:
            scores = tl.where(key <= query + keys_minus_queries, scores, 0.0)
        target = (
            out_head + place.to(tl.int64) * out_strides[2] + token.to(tl.int64) * out_strides[3]
        )
        tl.store(target, scores, mask=exists)


def rows(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) for the chosen i and all j."""
    out = q.new_empty(*q.shape[:2], len(index), k.shape[2], dtype=torch.float32)
    launch(q, k, index, lse, out, scale, causal, gathers_queries=True)
    return out


def columns(q: Tensor, k: Tensor, lse: Tensor, index: Tensor, scale: float, causal: bool) -> Tensor:
    """exp(scale * q_i . k_j - lse_i) for all i and the chosen j."""
    out = q.new_empty(*q.shape[:3], len(index), dtype=torch.float32)
    launch(k, q, index, lse, out.transpose(2, 3), scale, causal, gathers_queries=False)
    return out


def gradient_rows(grad_output: Tensor, v: Tensor, index: Tensor, causal: bool) -> Tensor:
    """dO_i . v_j for the chosen i and all j."""
    out = v.new_empty(*grad_output.shape[:2], len(index), v.shape[2], dtype=torch.float32)
    launch(grad_output, v, index, None, out, 1.0, causal, gathers_queries=True)
    return out


def gradient_columns(grad_output: Tensor, v: Tensor, index: Tensor, causal: bool) -> Tensor:
    """dO_i . v_j for all i and the chosen j."""
    out = v.new_empty(*grad_output.shape[:3], len(index), dtype=torch.float32)
    launch(v, grad_output, index, None, out.transpose(2, 3), 1.0, causal, gathers_queries=False)
    return out


def launch(
    gathered: Tensor,
    streamed: Tensor,
    index: Tensor,
    lse: Tensor | None,
    out: Tensor,
    scale: float,
    causal: bool,
    gathers_queries: bool,
) -> None:
    """Fill out [batch, heads, len(index), streamed tokens], any strides: with P, without an lse with dP."""
    if out.numel() == 0:
        return
    batch, heads, picked, tokens = out.shape
    head_dim = gathered.shape[3]
    difference = tokens - gathered.shape[2]
    few = picked < GATHERED_PER_PROGRAM
    wide = head_dim > 128 or streamed.element_size() == 4  # would not fit in the registers
    block_s = BLOCK_STREAMED // 2 if wide else BLOCK_STREAMED
    grid = (
        triton.cdiv(tokens, block_s) * batch * heads,
        min(triton.cdiv(picked, GATHERED_PER_PROGRAM), 65535),
    )
    with on_device_of(out):
        rebuild_kernel[grid](
            gathered,
            streamed,
            index,
            lse,
            out,
            gathered.stride(),
            streamed.stride(),
            None if lse is None else lse.stride(),
            out.stride(),
            heads,
            heads // gathered.shape[1],
            heads // streamed.shape[1],
            picked,
            tokens,
            difference if gathers_queries else -difference,
            scale * math.log2(math.e),
            EXPONENTIAL=lse is not None,
            HEAD_DIM=head_dim,
            BLOCK_G=1 if few else GATHERED_PER_PROGRAM,
            BLOCK_S=block_s,
            BLOCK_D=padded(head_dim),
            GATHERS_QUERIES=gathers_queries,
            CAUSAL=causal,
            WIDE=offsets_are_wide(streamed),
        )
