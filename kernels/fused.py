"""What a transformer block does around attention, each in one kernel: LayerNorm, and a linear layer that is added.

On a GPU, in half precision and without gradients, Triton kernels do it. Elsewhere torch's layers do the same
one after the other; `reason_against` and its two companions say which it will be, and why.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.problem import Problem
from kernels.triton_mode import reason_against_gpu

STEP = 64
"""Widths of a linear layer must be multiples of this, so that only rows need a mask."""

WIDEST = 4096
"""Numbers of a row that LayerNorm holds on chip."""


def layer_norm(tokens: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(tokens - mean) / sqrt(variance + eps) * weight + bias, along the last dimension.

    tokens [..., width], weight and bias [width] -> like tokens. Ba, Kiros and Hinton 2016.
    """
    if reason_against_norm(tokens, weight, bias) is not None:
        return F.layer_norm(tokens, weight.shape, weight, bias, eps)
    from kernels.fused_triton import launch_norm

    return launch_norm(tokens, weight, bias, eps)


def linear_add(
    tokens: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, residual: Tensor
) -> Tensor:
    """residual + scale * (tokens W^T + b): a linear layer, LayerScale (Touvron et al. 2021), the residual.

    tokens [..., width], weight [out, width], bias and scale [out], residual [..., out] -> like residual.
    """
    if reason_against_linear(tokens, weight, bias, scale, residual) is not None:
        return torch.addcmul(residual, scale, F.linear(tokens, weight, bias))
    from kernels.fused_triton import launch_linear

    return launch_linear(tokens, weight, bias, scale, residual)


def reason_against(*tensors: Tensor) -> str | None:
    """None where one kernel does it, or the sentence saying why torch's layers follow one another."""
    device, dtypes = tensors[0].device, {tensor.dtype for tensor in tensors}
    if device.type != "cuda":
        return "Without a GPU torch's own layers are the fastest."
    if dtypes not in ({torch.float16}, {torch.bfloat16}):
        return f"The fused layers are for half precision throughout, not {tensors[0].dtype}."
    if torch.compiler.is_compiling():
        return "torch.compile fuses layers itself."
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "The fused layers have no backward pass; use torch.no_grad()."
    return reason_against_gpu(Problem(1, 1, 1, 1, STEP), device)


def reason_against_linear(tokens: Tensor, weight: Tensor, *others: Tensor) -> str | None:
    """The same for `linear_add`."""
    out, width = weight.shape
    if out % STEP or width % STEP:
        return f"The fused layer needs widths that are multiples of {STEP}, not {width} and {out}."
    return reason_against(tokens, weight, *others)


def reason_against_norm(tokens: Tensor, weight: Tensor, bias: Tensor) -> str | None:
    """The same for `layer_norm`."""
    if len(weight) > WIDEST:
        return f"The fused LayerNorm holds rows of at most {WIDEST} numbers, not {len(weight)}."
    return reason_against(tokens, weight, bias)
