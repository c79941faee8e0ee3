"""Every layer and every head for one query: what the page draws after a click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vit.maps.column import column_tokens
from vit.maps.facts import Facts, facts
from vit.maps.row import row_tokens
from vit.trace import Query, Trace

Direction = Literal["looks", "looked_at"]
TOKENS_OF = {"looks": row_tokens, "looked_at": column_tokens}


@dataclass(frozen=True)
class Survey:
    """Weights of one query in all layers and heads, float32 on the CPU [layers, heads, tokens]."""

    values: Tensor
    facts: Facts


def survey(trace: Trace, query: Query, direction: Direction = "looks") -> Survey:
    """One row ("looks") or column ("looked_at") of P for every layer and head.

    The facts come from the same float32 values, before anything is rounded for the screen.
    """
    read = TOKENS_OF[direction]
    values = torch.stack([read(trace, layer, query) for layer in range(len(trace.layers))]).cpu()
    return Survey(values, facts(values, trace, query))
