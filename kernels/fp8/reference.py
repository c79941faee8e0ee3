"""Attention in FP8 as the kernel computes it, step by step in torch: to see its error without a GPU.

What it leaves out is the order of additions, and that Hopper's FP8 products are summed with fewer bits.
"""

from __future__ import annotations

import math

import torch
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
    centre_of,
    key_order,
    key_step,
    padded_rows,
)
from kernels.fp8.rotation import rotation_on

P_DOUBLINGS = 8.0
"""P is held times 2^8, so that its largest number, 256, is near e4m3's and small ones are not lost."""

STRAIGHT_SHIFT = 0.0575327
"""Makes the mean of (straight line / 2^x) one."""


def quantize_in_torch(
    q: Tensor, k: Tensor, v: Tensor, rotate: bool = True, centre: bool = True, negate: bool = False
) -> Quantized:
    """What `kernels.fp8.to_e4m3` makes on a GPU, on any device."""
    batch, heads, queries, _ = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    q = -q if negate else q
    offset = torch.zeros(batch * heads, padded_rows(queries), device=q.device)
    v_centre = torch.zeros(batch * kv_heads, v.shape[3], device=q.device)
    if centre:
        v_centre = centre_of(v).flatten(0, 2)
        middle = centre_of(k, key_step(keys))
        of_query = middle.repeat_interleave(heads // kv_heads, 1)
        offset[:, :queries] = (q.float() * of_query).sum(-1).flatten(0, 1)
        k = k.float() - middle
    q8, q_scale = rows_quantized(q, QUERY_ROWS, QUERY_LARGEST, rotate)
    k8, k_scale = rows_quantized(k, KEY_ROWS, KEY_LARGEST, rotate)
    v8, v_scale = values_quantized(v, v_centre)
    return Quantized(
        q8, k8, v8, q_scale, k_scale, v_scale, offset, v_centre,
        batch, heads, kv_heads, queries, keys, rotate, centre,
    )  # fmt: skip


def rows_quantized(x: Tensor, block: int, largest: float, rotate: bool) -> tuple[Tensor, Tensor]:
    """[batch, heads, tokens, head_dim] -> e4m3 [batch * heads, rows, head_dim], scale [batch * heads, rows / block]."""
    padded = with_rows(x.flatten(0, 1).float())
    if rotate:
        head_dim = x.shape[-1]
        padded = padded @ rotation_on(x.device, torch.float32, head_dim) * head_dim**-0.5
    blocks = padded.unflatten(1, (-1, block))
    scale = (blocks.abs().amax((2, 3)) / largest).clamp_min(LEAST_SCALE)
    return (blocks / scale[..., None, None]).flatten(1, 2).to(E4M3), scale


def values_quantized(v: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """[batch, heads, tokens, head_dim] -> e4m3 [batch * heads, head_dim, rows] in key order, scale [.., head_dim]."""
    padded = with_rows(v.flatten(0, 1).float() - centre[:, None])
    scale = (padded.abs().amax(1) / LARGEST).clamp_min(LEAST_SCALE)
    numbers = (padded / scale[:, None]).unflatten(1, (-1, 16))[:, :, key_order(v.device)]
    return numbers.flatten(1, 2).transpose(1, 2).to(E4M3).contiguous(), scale


def with_rows(x: Tensor) -> Tensor:
    """Zeros behind the last token, up to a whole number of tiles."""
    return torch.nn.functional.pad(x, (0, 0, 0, padded_rows(x.shape[1]) - x.shape[1]))


def values_of(held: Quantized) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v as the numbers and scales say, float32 [batch, heads, tokens, head_dim]; q and k still rotated,
    k and v without their centres."""
    q = held.q.float() * held.q_scale.repeat_interleave(QUERY_ROWS, 1)[..., None]
    k = held.k.float() * held.k_scale.repeat_interleave(KEY_ROWS, 1)[..., None]
    back = key_order(held.v.device).argsort()
    v = held.v.float().transpose(1, 2).unflatten(1, (-1, 16))[:, :, back].flatten(1, 2)
    v = v * held.v_scale[:, None]
    return (
        q[:, : held.queries].unflatten(0, (held.batch, held.heads)),
        k[:, : held.keys].unflatten(0, (held.batch, held.kv_heads)),
        v[:, : held.keys].unflatten(0, (held.batch, held.kv_heads)),
    )


def straight_exp2(exponents: Tensor) -> Tensor:
    """e4m3 of 2^x as `kernels.fp8.weights_in_bytes` makes it: a straight line between powers of two. -> float32

    The byte of a number in e4m3 is eight times its logarithm, but for the straight line. STRAIGHT_SHIFT makes the line
    right in the mean: it is off by -3.9 to +2.0 %, 1.8 % in the mean square. Numbers below 2^-6 come out too small,
    and from 2^-7 on as zero. Schraudolph 1999, in the eight bits of e4m3.
    """
    byte = 8.0 * (exponents + 7.0 - STRAIGHT_SHIFT)
    return byte.round().clamp(0, 126).to(torch.uint8).view(E4M3).float()


def attention_of(
    held: Quantized, scale: float, causal: bool = False, straight: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention of what was quantised, with P rounded to e4m3 too. -> output and log-sum-exp, float32.

    `scale` is positive: quantise -q where it is not. straight: exponentials by `straight_exp2`.
    """
    q, k, v = values_of(held)
    group = held.heads // held.kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale * math.log2(math.e))
    if causal:
        seen = torch.ones(held.queries, held.keys, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(~seen.tril(held.keys - held.queries), -math.inf)
    shift = scores.amax(-1, keepdim=True) - P_DOUBLINGS
    shift = shift.masked_fill(shift == -math.inf, 0.0)
    weights = straight_exp2(scores - shift) if straight else torch.exp2(scores - shift)
    total = weights.sum(-1, keepdim=True)
    output = weights.to(E4M3).float() @ v / total.masked_fill(total == 0.0, 1.0)
    centre = held.v_centre.unflatten(0, (held.batch, held.kv_heads)).repeat_interleave(group, 1)
    output += (total > 0.0) * centre[:, :, None]
    log_sum_exp = ((shift + total.log2()) * math.log(2.0)).squeeze(-1)
    offset = held.q_offset[:, : held.queries].unflatten(0, (held.batch, held.heads))
    return output, log_sum_exp + scale * offset
