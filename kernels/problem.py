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
