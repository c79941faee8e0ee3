"""How far sampled rows, columns and sums of a layer are from float64, a head at a time."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from kernels import attention_columns, attention_rows, reference
from kernels.recompute.proof import true_columns
from vit.trace import Query, Trace

SAMPLES = 3
"""Rows and columns compared in each head, besides the query's own."""


@dataclass(frozen=True)
class Errors:
    """The largest errors: of a weight, as a share of the largest in its row or column; of a sum, of itself.

    `row_sums`: how far a row's sum is from 1. `received_sums`: how far the column sums are, together, from
    the number of queries, as a share of it.
    """

    rows: float = 0.0
    columns: float = 0.0
    received: float = 0.0
    row_sums: float = 0.0
    received_sums: float = 0.0

    def worse(self, other: Errors) -> Errors:
        """The larger of each; NaN is the largest of all."""
        pairs = torch.tensor([astuple(self), astuple(other)], dtype=torch.float64)
        return Errors(*pairs.max(0).values.tolist())

    @property
    def largest(self) -> float:
        return torch.tensor(astuple(self), dtype=torch.float64).max().item()


def errors_of(
    single: Trace, query: Query, rows: Tensor, columns: Tensor, received: Tensor
) -> Errors:
    """Of a layer's maps [heads, tokens], for the trace of that layer alone.

    Rows and columns of other tokens are rebuilt for it. float64 is for one head and few tokens at a time.
    """
    tokens, own = single.tokens, single.token(query)
    index = [own, *((2 * i + 1) * tokens // (2 * SAMPLES) for i in range(SAMPLES))]
    part, scale, worst = single.layers[0], single.scale, Errors()
    for head in range(single.heads):
        q, k, lse = (t[:, head : head + 1] for t in (part.q, part.k, part.log_sum_exp))
        some_rows = attention_rows(q, k, lse, index, scale)
        some_rows[0, 0, 0] = rows[head]
        some_columns = attention_columns(q, k, lse, index, scale)
        some_columns[0, 0, :, 0] = columns[head]
        sums = received[head].to(q.device)
        true_rows = torch.softmax(reference.scores(q[:, :, index], k, scale), -1)
        weights = true_columns(q, k, lse, index, scale, causal=False)
        found = Errors(
            share(some_rows, true_rows, -1),
            share(some_columns, weights, -2),
            share(sums[index], weights[0, 0].sum(0), None),
            off(some_rows.double().sum(-1), 1.0),
            off(sums.double().sum(), float(tokens)),
        )
        worst = worst.worse(found)
    return worst


def share(found: Tensor, truth: Tensor, tokens: int | None) -> float:
    """The largest error as a share of the largest true weight along `tokens`, None: of itself."""
    error, whole = (found - truth).abs(), truth
    if tokens is not None:
        error, whole = error.amax(tokens), truth.amax(tokens)
    return (error / whole.clamp_min(torch.finfo(torch.float32).tiny)).max().item()


def off(sums: Tensor, right: float) -> float:
    """The largest distance from what the sums should be, as a share of it."""
    return (sums / right - 1.0).abs().max().item()
