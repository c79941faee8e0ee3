# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Attention as textbooks write it, backward, from the P that was kept. Dao et al. 2022, Algorithm 3."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Saved
from kernels.naive.products import block_pointers, pairs, sums
from kernels.naive.tile_sizes import SOFTMAX_BACKWARD
from kernels.tile_sizes import padded
from kernels.tiles import (
    head_pointer,
    load_strided,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    tl,
    triton,
)


@triton.jit
def softmax_backward_kernel(
    probabilities_ptr,
    grad_ptr,
    output_ptr,
    grad_output_ptr,
    grad_lse_ptr,
    output_strides,
    grad_output_strides,
    grad_lse_strides,
    heads,
    queries,
    columns,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_GRAD_LSE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: BLOCK_Q rows of dP become rows of dS = P * (dP - delta), in the same place."""
    query_start, batch_head, batch, head = place_of_program(queries, heads, BLOCK_Q)
    output = load_tile(
        head_pointer(output_ptr, output_strides, batch, head), query_start, queries,
        output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    grad_output = load_tile(
        head_pointer(grad_output_ptr, grad_output_strides, batch, head), query_start, queries,
        grad_output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    delta = tl.sum(output.to(tl.float32) * grad_output.to(tl.float32), 1)  # [BLOCK_Q]
    if HAS_GRAD_LSE:
        grad_lse_head = head_pointer(grad_lse_ptr, grad_lse_strides, batch, head)
        delta -= load_strided(
            grad_lse_head, query_start, queries, grad_lse_strides[2], 0.0, BLOCK_Q, True, True
        )

    first_row = batch_head * queries
    strides = (columns, 1)
    for key_start in range(0, columns, BLOCK_K):
        place, inside = block_pointers(
            probabilities_ptr + first_row * columns, query_start, queries, key_start, columns,
            strides, BLOCK_Q, BLOCK_K, WIDE,
        )  # fmt: skip
        probabilities = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        place, inside = block_pointers(
            grad_ptr + first_row * columns, query_start, queries, key_start, columns,
            strides, BLOCK_Q, BLOCK_K, WIDE,
        )  # fmt: skip
        grad = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        grad = probabilities * (grad - delta[:, None])
        tl.store(place, grad.to(grad_ptr.dtype.element_ty), mask=inside)


def softmax_backward_in_place(
    grad: Tensor, saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> None:
    """dP, contiguous like the kept P, becomes dS."""
    batch, heads, queries, columns = grad.shape
    tiles, head_dim = SOFTMAX_BACKWARD, saved.output.shape[3]
    grad_lse = saved.log_sum_exp if grad_log_sum_exp is None else grad_log_sum_exp
    with on_device_of(grad):
        softmax_backward_kernel[(triton.cdiv(queries, tiles.block_q) * batch * heads,)](
            saved.kept,
            grad,
            saved.output,
            grad_output,
            grad_lse,
            saved.output.stride(),
            grad_output.stride(),
            grad_lse.stride(),
            heads,
            queries,
            columns,
            HEAD_DIM=head_dim,
            BLOCK_Q=tiles.block_q,
            BLOCK_K=tiles.block_k,
            BLOCK_D=padded(head_dim),
            HAS_GRAD_LSE=grad_log_sum_exp is not None,
            WIDE=offsets_are_wide(grad, saved.output, grad_output),
            num_warps=tiles.warps,
        )


def launch_backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients like q, k and v. Beside the kept P one more N x N matrix is stored: dP, then dS over it."""
    probabilities, matrix = saved.kept, torch.empty_like(saved.kept)
    grad_q, grad_k, grad_v = (torch.empty_like(t) for t in (saved.q, saved.k, saved.v))

    # step: Give each value its part of the blame
    sums(probabilities.mT, grad_output, out=grad_v, factor=1.0)

    # step: Ask what each probability was worth
    pairs(grad_output, saved.v, out=matrix, factor=1.0)

    # step: Go back through the softmax
    softmax_backward_in_place(matrix, saved, grad_output, grad_log_sum_exp)

    # step: Move each query
    sums(matrix, saved.k, out=grad_q, factor=saved.scale)

    # step: Move each key
    sums(matrix.mT, saved.q, out=grad_k, factor=saved.scale)
    return grad_q, grad_k, grad_v
