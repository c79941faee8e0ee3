"""Maps of a query in every layer, read from a split trace: each rank its part, the whole on rank 0."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.parallel import gathered, ring_columns, ring_product, ring_rows
from vit.maps.row import on_grid
from vit.parallel import SplitTrace
from vit.trace import Query


def query_maps(trace: SplitTrace, map_name: str = "row", query: Query = "class") -> Tensor | None:
    """One map in every layer and head, float32 on the CPU [layers, heads, rows, columns].

    Every rank calls it with the same arguments; rank 0 gets the maps, the others None.

    Args:
        map_name: "row", where the query looks; "column", who looks at it; "received", what every patch
            receives from all tokens, whatever the query.
        query: as for `Trace.token`.

    Raises:
        ValueError: there is no such map, patch or token.
        LostRank: another rank ended, or did not come in time.
    """
    tokens = query_tokens(trace, map_name, query)
    return None if tokens is None else on_grid(tokens, trace.share)


def query_tokens(trace: SplitTrace, map_name: str = "row", query: Query = "class") -> Tensor | None:
    """The same for every token, the prefix among them: [layers, heads, tokens]."""
    if map_name not in PARTS:
        raise ValueError(
            f"there is no map {map_name!r} of a split trace; choose {', '.join(PARTS)}"
        )
    token = trace.token(query)
    parts = (PARTS[map_name](trace, layer, token) for layer in range(len(trace.share.layers)))
    layers = [
        whole.cpu() for part in parts if (whole := gathered(part, 1, trace.group)) is not None
    ]
    return torch.stack(layers) if layers else None


def row_part(trace: SplitTrace, layer: int, token: int) -> Tensor:
    """From the query to this rank's tokens, [heads, own tokens]."""
    part = trace.share.layers[layer]
    return ring_rows(
        part.q, part.k, part.log_sum_exp, [token],
        trace.group, trace.share.scale, shards=trace.shards,
    )[0, :, 0]  # fmt: skip


def column_part(trace: SplitTrace, layer: int, token: int) -> Tensor:
    """From this rank's tokens to the query, [heads, own tokens]."""
    part = trace.share.layers[layer]
    return ring_columns(
        part.q, part.k, part.log_sum_exp, [token],
        trace.group, trace.share.scale, shards=trace.shards,
    )[0, ..., 0]  # fmt: skip


def received_part(trace: SplitTrace, layer: int, token: int) -> Tensor:
    """From all tokens of all ranks to each of this rank's, [heads, own tokens]."""
    part = trace.share.layers[layer]
    return ring_product(
        None, part.q, part.k, part.log_sum_exp,
        trace.group, trace.share.scale, shards=trace.shards,
    )[0]  # fmt: skip


PARTS = {"row": row_part, "column": column_part, "received": received_part}
