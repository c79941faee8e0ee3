# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""FlashAttention-2, backward, in two passes without atomics. Dao 2023, Algorithm 2.

The paper's one pass adds to dQ from many programs at once, in whatever order they come. Here one pass owns
the key tiles (dK, dV) and one the query tiles (dQ): P is rebuilt twice, and every run gives the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.fa2.backward_keys import launch_keys
from kernels.fa2.backward_queries import launch_queries
from kernels.implementation import Saved
from kernels.tile_sizes import padded
from kernels.tiles import (
    head_pointer,
    launch,
    load_strided,
    load_tile,
    offsets_are_wide,
    on_device_of,
    place_of_program,
    store_vector,
    tl,
    triton,
)


@triton.jit(do_not_specialize=["heads", "queries"])
def delta_kernel(
    output_ptr,
    grad_output_ptr,
    grad_lse_ptr,
    delta_ptr,
    output_strides,
    grad_output_strides,
    grad_lse_strides,
    heads,
    queries,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_GRAD_LSE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """delta_i = sum_d dO_id O_id - dlse_i, float32 [batch, heads, queries]: what every dS of a row needs."""
    start, batch_head, batch, head = place_of_program(queries, heads, BLOCK_Q)
    output = load_tile(
        head_pointer(output_ptr, output_strides, batch, head),
        start, queries, output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    grad_output = load_tile(
        head_pointer(grad_output_ptr, grad_output_strides, batch, head),
        start, queries, grad_output_strides[2:], HEAD_DIM, BLOCK_Q, BLOCK_D, True, WIDE,
    )  # fmt: skip
    # step: Sum dO times O
    delta = tl.sum(output.to(tl.float32) * grad_output.to(tl.float32), 1)
    if HAS_GRAD_LSE:
        grad_lse_head = head_pointer(grad_lse_ptr, grad_lse_strides, batch, head)
        delta -= load_strided(
            grad_lse_head, start, queries, grad_lse_strides[2], 0.0, BLOCK_Q, True, True
        )
    store_vector(delta_ptr + batch_head * queries, delta, start, queries, BLOCK_Q)


def launch_backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients like q, k and v. Memory beyond them: delta, float32 [batch, heads, queries]."""
    grad_q, grad_k, grad_v = (torch.empty_like(t) for t in (saved.q, saved.k, saved.v))
    delta = launch_delta(saved.output, grad_output, grad_log_sum_exp)
    with on_device_of(saved.q):
        launch_keys(saved, grad_output, delta, grad_k, grad_v)
        launch_queries(saved, grad_output, delta, grad_q)
    return grad_q, grad_k, grad_v


def launch_delta(output: Tensor, grad_output: Tensor, grad_log_sum_exp: Tensor | None) -> Tensor:
    """delta, float32 [batch, heads, queries]."""
    batch, heads, queries, head_dim = output.shape
    delta = output.new_empty(output.shape[:3], dtype=torch.float32)
    grad_lse = delta if grad_log_sum_exp is None else grad_log_sum_exp
    block_d = padded(head_dim)
    block_q = max(16, 4096 // block_d)
    with on_device_of(output):
        launch(
            delta_kernel,
            triton.cdiv(queries, block_q) * batch * heads,
            output,
            grad_output,
            grad_lse,
            delta,
            output.stride(),
            grad_output.stride(),
            grad_lse.stride(),
            heads,
            queries,
            HEAD_DIM=head_dim,
            BLOCK_Q=block_q,
            BLOCK_D=block_d,
            HAS_GRAD_LSE=grad_log_sum_exp is not None,
            WIDE=offsets_are_wide(output, grad_output),
        )
    return delta
