"""Attention in FP8 on Hopper: half of the bytes, twice the speed of the matrix units, a known error.

Exponentials are approximated by default where head_dim is 64 or 128: the byte of a weight in e4m3 is taken from a straight
line between powers of two, off by -3.9 to +2.0 % and right in the mean, besides the rounding by up to 6.25 %.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.checks import check_query_key, check_same, default_scale
from kernels.fp8.quantized import HEAD_DIMS, Quantized

__all__ = ["Quantized", "attention_fp8", "attention_of_quantized", "quantize", "reason"]

HALF = (torch.float16, torch.bfloat16)


def attention_fp8(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    causal: bool = False,
    rotate: bool = True,
    centre: bool = True,
    exact: bool = False,
) -> tuple[Tensor, Tensor]:
    """softmax(scale * Q K^T) V with both products in e4m3.

    q [batch, heads, queries, head_dim], k and v [batch, kv_heads, keys, head_dim], float16 or bfloat16, on a
    Hopper GPU -> output like q, and the log-sum-exp of the scaled scores (of what was rounded), natural
    logarithm, float32 [batch, heads, queries]. Before rounding, `rotate` spreads outliers over the channels and
    `centre` takes from keys and values what they have in common; neither changes the result. `exact` takes exponentials
    where a straight line stands for them otherwise (see above). The causal mask is aligned at the bottom right.
    Forward only: no gradient passes.

    Raises:
        TypeError, ValueError: an argument does not fit, in one sentence.
        RuntimeError: there is no Hopper GPU, or no Gluon, in one sentence.
    """
    check(q, k, v)
    why_not = reason(q.device)
    if why_not:
        raise RuntimeError(why_not)
    scale = default_scale(q) if scale is None else float(scale)
    if not (q.numel() and k.numel()):
        raise ValueError("attention_fp8 needs at least one batch, head, query and key")
    if scale == 0.0:  # scores of zero, whatever q holds
        q, scale = torch.zeros_like(q), 1.0
    held = quantize(q, k, v, rotate=rotate, centre=centre, negate=scale < 0)
    return attention_of_quantized(held, abs(scale), causal, q.dtype, exact)


def attention_of_quantized(
    held: Quantized,
    scale: float,
    causal: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    exact: bool = False,
) -> tuple[Tensor, Tensor]:
    """`attention_fp8` of what was quantised before, for a scale > 0. -> output in dtype, log-sum-exp

    Raises:
        ValueError: the scale is not positive.
        RuntimeError: there is no Hopper GPU, in one sentence.
    """
    why_not = reason(held.q.device)
    if why_not:
        raise RuntimeError(why_not)
    if not scale > 0.0:
        raise ValueError(
            f"scale must be positive, not {scale}; quantize(negate=True) turns q round"
        )
    from kernels.fp8.forward import launch_forward

    return launch_forward(held, scale, causal, dtype, exact)


def quantize(
    q: Tensor, k: Tensor, v: Tensor, rotate: bool = True, centre: bool = True, negate: bool = False
) -> Quantized:
    """q, k and v in e4m3 with their scales, as `attention_fp8` reads them; on a GPU by kernels, else in torch.

    `negate` turns the sign of q: for a negative scale.

    Raises:
        TypeError, ValueError: an argument does not fit, in one sentence.
    """
    check(q, k, v)
    if q.is_cuda:
        from kernels.fp8.to_e4m3 import quantize_on_gpu

        return quantize_on_gpu(q, k, v, rotate, centre, negate)
    from kernels.fp8.reference import quantize_in_torch

    return quantize_in_torch(q, k, v, rotate, centre, negate)


def reason(device: torch.device) -> str | None:
    """Why FP8 attention cannot run on this device, in one sentence; None where it can."""
    if device.type != "cuda":
        return f"attention_fp8 needs a Hopper GPU (compute capability 9.0), not {device.type}."
    if not torch.cuda.is_available():
        return (
            "attention_fp8 needs a Hopper GPU (compute capability 9.0), and there is no GPU here."
        )
    capability = torch.cuda.get_device_capability(device)
    if capability != (9, 0):
        found = ".".join(map(str, capability))
        return f"attention_fp8 needs a Hopper GPU (compute capability 9.0), not one of {found}."
    return None


def check(q: Tensor, k: Tensor, v: Tensor) -> None:
    check_query_key(q, k)
    check_same("v", v, k)
    if q.dtype not in HALF:
        raise TypeError(f"FP8 attention takes float16 or bfloat16 and rounds it, not {q.dtype}.")
    if q.shape[-1] not in HEAD_DIMS:
        raise ValueError(f"FP8 attention takes head_dim 64, 128 or 256, not {q.shape[-1]}.")
