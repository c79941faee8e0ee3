"""What attention in FP8 reads: q, k and v in e4m3 with their scales, padded and laid out for the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest number in e4m3: 1.75 * 2^8. Of a channel of v it is the largest value."""

QUERY_LARGEST, KEY_LARGEST = 28.0, 14.0
"""Of a block of q and of k: 1.75 * 2^4 and 1.75 * 2^3. A score of 128 products is then 50,176 or less and fits in float16,
in which the kernel goes on; e4m3 has the same three bits at every size, and only below 1/1792 of the largest, or
1/896, are its steps wider than those."""

QUERY_ROWS, KEY_ROWS = 64, 128
"""Rows that share a scale: those of one warpgroup of queries, and one tile of keys."""

PADDED_ROWS = 128
"""Queries and keys are padded with zeros to a multiple of this."""

LEAST_SCALE = 1e-15
"""Of a block of zeros. The product of two is no zero in float32, by which a hidden score would become NaN."""

HEAD_DIMS = (64, 128, 256)

CENTRE_KEYS = 2048
"""The centre of keys is the mean of every n-th, so many of them or up to twice that; any vector would do."""


@dataclass(frozen=True)
class Quantized:
    """e4m3 numbers and float32 scales; number times scale is the value.

    `q` [batch * heads, rows, head_dim] and `k` [batch * kv_heads, rows, head_dim], rotated or not;
    `v` [batch * kv_heads, head_dim, rows], transposed, each 16 keys in the order of `key_order`.
    `q_scale` [batch * heads, rows / 64], `k_scale` [batch * kv_heads, rows / 128], `v_scale`
    [batch * kv_heads, head_dim]: one for a channel, so that it leaves the sum over keys and is applied once,
    when the output is divided. A scale for each block of keys would be finer, but P would have to carry it.

    Where `centred`, all keys of a head had one vector c taken from them, which moves all scores of a query by q c
    and so leaves the softmax alone; `q_offset` [batch * heads, rows] is that q c, and the log-sum-exp gets it back.
    All values had `v_centre` [batch * kv_heads, head_dim] taken from them; as weights sum to 1 the output gets it
    back. That makes both smaller, and P V a sum about zero, of which FP8's short sums lose less: so `v_centre` is the
    mean of all values. Of 256 of them it is off by 1/16 of their spread, and of many keys' sum enough is lost to show.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_scale: Tensor
    k_scale: Tensor
    v_scale: Tensor
    q_offset: Tensor
    v_centre: Tensor
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    rotated: bool
    centred: bool

    @property
    def head_dim(self) -> int:
        return self.q.shape[-1]


def key_step(keys: int) -> int:
    """Every which key the centre of keys is the mean of."""
    return max(1, keys // CENTRE_KEYS)


def centre_of(x: Tensor, step: int = 1) -> Tensor:
    """The mean of every step-th token of each head. -> float32 [batch, kv_heads, 1, head_dim]"""
    return x[:, :, ::step].mean(2, keepdim=True, dtype=torch.float32)


def key_order(device: torch.device | None = None) -> Tensor:
    """Which key of 16 stands at each place of v: int64 [16].

    After Q K^T a thread holds columns 2q, 2q+1, 2q+8, 2q+9 of 16; as FP8 operand of P V it must hold
    columns 4q ... 4q+3. Softmax and P V sum over the keys in any order, so V comes in the order in which
    P already stands, and P's registers stay where they are.
    """
    place = torch.arange(16, device=device)
    return place // 4 * 2 + place % 2 + place // 2 % 2 * 8


def padded_rows(tokens: int) -> int:
    return -(-tokens // PADDED_ROWS) * PADDED_ROWS
