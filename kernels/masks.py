"""Which keys a query may see."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
    """True where query i may see key j: j <= i + keys - queries, [queries, keys].

    Aligned to the bottom right, so the last query sees every key (FlashAttention 2.1 and later).
    """
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=keys - queries)
