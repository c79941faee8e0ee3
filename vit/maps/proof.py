"""How far the rebuilt rows are from the truth, measured beside every map."""

from __future__ import annotations

from dataclasses import dataclass

from kernels import attention_rows
from kernels.recompute.proof import rows_error
from vit.trace import Query, Trace


@dataclass(frozen=True)
class Proof:
    """Sampled rows of one layer, all heads, against float64 on the same q and k."""

    row_sum_low: float
    row_sum_high: float
    largest_error: float
    rows: tuple[int, ...]


def proof(trace: Trace, layer: int = -1, query: Query = "class", samples: int = 8) -> Proof:
    """Rebuild the query's row and `samples` rows spread over the picture; compare them with float64."""
    part = trace.layers[layer]
    spread = (i * (trace.tokens - 1) // max(samples - 1, 1) for i in range(samples))
    index = sorted({trace.token(query), *spread})
    rebuilt = attention_rows(part.q, part.k, part.log_sum_exp, index, trace.scale)
    error = rows_error(rebuilt, part.q, part.k, index, trace.scale)
    sums = rebuilt.double().sum(-1)
    return Proof(sums.min().item(), sums.max().item(), error, tuple(index))
