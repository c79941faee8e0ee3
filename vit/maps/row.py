"""Where one token looks: its row of P."""

from __future__ import annotations

from torch import Tensor

from kernels import attention_rows
from vit.trace import Query, Trace


def row(trace: Trace, layer: int = -1, query: Query = "class") -> Tensor:
    """Attention from `query` to every patch, float32 [heads, rows, columns]; the prefix is left out."""
    return on_grid(row_tokens(trace, layer, query), trace)


def row_tokens(trace: Trace, layer: int = -1, query: Query = "class") -> Tensor:
    """Attention from `query` to every token, float32 [heads, tokens]; each head sums to 1."""
    part = trace.layers[layer]
    index = [trace.token(query)]
    return attention_rows(part.q, part.k, part.log_sum_exp, index, trace.scale)[0, :, 0]


def on_grid(tokens: Tensor, trace: Trace) -> Tensor:
    """[..., tokens] without the prefix, as [..., rows, columns]."""
    patches = tokens[..., len(trace.prefix) :]
    return patches.unflatten(-1, (trace.grid.rows, trace.grid.columns))
