"""Who looks at one token: its column of P."""

from __future__ import annotations

from torch import Tensor

from kernels import attention_columns
from vit.maps.row import on_grid
from vit.trace import Query, Trace


def column(trace: Trace, layer: int = -1, query: Query = "class") -> Tensor:
    """Attention from every patch to `query`, float32 [heads, rows, columns]; the prefix is left out."""
    return on_grid(column_tokens(trace, layer, query), trace)


def column_tokens(trace: Trace, layer: int = -1, query: Query = "class") -> Tensor:
    """Attention from every token to `query`, float32 [heads, tokens]; it need not sum to 1."""
    part = trace.layers[layer]
    index = [trace.token(query)]
    return attention_columns(part.q, part.k, part.log_sum_exp, index, trace.scale)[0, ..., 0]
