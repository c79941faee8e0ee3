"""The size of one attention problem, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """softmax(scale * Q K^T) V for q [batch, heads, queries, head_dim], k and v [batch, kv_heads, keys, head_dim].

    `dtype` is torch's name without the prefix ("float16"); `kv_heads` None means one for each head.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    dtype: str = "float16"
    causal: bool = False
    kv_heads: int | None = None

    @classmethod
    def of(cls, q: Tensor, k: Tensor, causal: bool = False) -> Self:
        """The problem that these tensors set."""
        batch, heads, queries, head_dim = q.shape
        dtype = str(q.dtype).removeprefix("torch.")
        return cls(batch, heads, queries, k.shape[2], head_dim, dtype, causal, k.shape[1])

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // (self.kv_heads or self.heads)

    @property
    def empty(self) -> bool:
        """True where there is nothing to compute: no query, no key, no head, no batch or no width."""
        return 0 in (self.batch, self.heads, self.queries, self.keys, self.head_dim)

    def __str__(self) -> str:
        shape = f"b{self.batch}h{self.heads}q{self.queries}k{self.keys}d{self.head_dim}"
        return f"{shape}-{self.dtype}{'-causal' if self.causal else ''}"


PROBLEMS = (
    # one token, one tile short, one over, the token counts of ViTs, none a multiple of a tile
    Problem(1, 1, 1, 1, 64),
    Problem(2, 3, 63, 63, 64),
    Problem(1, 2, 65, 65, 64),
    Problem(2, 2, 197, 197, 64),
    Problem(1, 2, 257, 257, 64),
    # widths that are no power of two, and the narrowest
    Problem(1, 1, 33, 33, 1),
    Problem(1, 2, 70, 70, 40),
    Problem(1, 1, 50, 90, 72),
    Problem(1, 1, 40, 64, 128),
    Problem(1, 1, 33, 48, 256),
    # queries differ from keys; a causal mask with rows that see nothing; shared heads
    Problem(1, 2, 113, 203, 32),
    Problem(1, 2, 128, 128, 64, causal=True),
    Problem(1, 2, 65, 130, 64, causal=True),
    Problem(1, 2, 70, 30, 64, causal=True),
    Problem(1, 6, 97, 97, 32, kv_heads=2),
    Problem(2, 4, 60, 100, 64, causal=True, kv_heads=1),
    # a GPU's sizes: too many scores for the interpreter
    Problem(1, 6, 5477, 5477, 64),
    Problem(16, 6, 1370, 1370, 64),
    Problem(1, 4, 4096, 4096, 128, causal=True),
)
"""Shapes that every implementation is tested on, in each dtype that the machine has."""
