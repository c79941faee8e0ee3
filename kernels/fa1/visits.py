# pyright: reportArgumentType=false
"""Which tiles meet, and where a result grows from one visit to the next; for both directions."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.tiles import tl, triton


@triton.jit
def first_visited(key_start, queries, keys, BLOCK_Q: tl.constexpr, CAUSAL: tl.constexpr):
    """The first query that a tile of keys goes to, a multiple of BLOCK_Q.

    Under a causal mask that is the tile of the first query that sees any of these keys. The first keys go
    to every query all the same, so that each result is written, of those that see nothing too.
    """
    first = 0
    if CAUSAL:
        first = tl.maximum(0, key_start - (keys - queries)) // BLOCK_Q * BLOCK_Q
        first = tl.where(key_start == 0, 0, first)
    return first


def float32_scratch(result: Tensor) -> Tensor:
    """Where a result grows, strided like it: the result itself if it is float32."""
    if result.dtype == torch.float32:
        return result
    return torch.empty_strided(
        result.shape, result.stride(), dtype=torch.float32, device=result.device
    )
