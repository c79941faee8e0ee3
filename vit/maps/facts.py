"""Measured facts about a map, in place of guesses about what a head is for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vit.trace import Query, Trace

STRONGEST = 10


@dataclass(frozen=True)
class Facts:
    """One figure for each layer and head; leading shape as in the weights they were taken from.

    Where the weights do not sum to 1 (a column of P), shares, entropy and distance are of the
    weights divided by their sum.
    """

    prefix_share: Tensor  # [..., prefix], share on the class token and each register
    entropy_bits: Tensor  # [...], 0 = one token alone, log2(tokens) = even over all
    mean_distance: Tensor  # [...], in patches from the query, patches only; NaN for a prefix token
    strongest: Tensor  # [..., 10] or fewer, token indices, strongest first, patches only


def facts(weights: Tensor, trace: Trace, query: Query) -> Facts:
    """The facts of weights [..., tokens], all at once."""
    prefix = len(trace.prefix)
    share = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    entropy = torch.special.entr(share).sum(-1) / torch.log(torch.tensor(2.0))
    patches = share[..., prefix:]
    strongest = patches.topk(min(STRONGEST, patches.shape[-1])).indices + prefix
    distance = mean_distance(patches, trace, query)
    return Facts(share[..., :prefix], entropy, distance, strongest)


def mean_distance(patches: Tensor, trace: Trace, query: Query) -> Tensor:
    """Distance from the query to where the weight on the patches [..., patches] lies, in patches."""
    if isinstance(query, str):
        return torch.full(patches.shape[:-1], torch.nan)
    grid = trace.grid
    rows = torch.arange(grid.rows, dtype=torch.float32).unsqueeze(1) - query[0]
    columns = torch.arange(grid.columns, dtype=torch.float32) - query[1]
    distances = torch.hypot(*torch.broadcast_tensors(rows, columns)).flatten()
    return (patches @ distances) / patches.sum(-1).clamp_min(torch.finfo(torch.float32).tiny)
