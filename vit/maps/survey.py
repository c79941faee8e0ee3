"""Every layer and every head for one query: what the page draws after a click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vit.image import Photo
from vit.maps.column import column_tokens
from vit.maps.facts import Facts, facts
from vit.maps.row import row, row_tokens
from vit.model import VisionTransformer
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


def all_maps(
    model: VisionTransformer, photo: Photo, side: int = 518, query: Query = "class"
) -> Tensor:
    """Row maps of one query in every layer and head, float32 on the CPU [layers, heads, rows, columns].

    Each layer is read as it passes and then freed, so a picture of any size costs no more memory than
    the model alone; the next query runs the model again. Where clicks follow, keep a trace instead.
    """
    pixels, grid = model.prepare(photo, side)
    name = model.choose_implementation(grid)
    maps = []
    for layer in model.layers(pixels, name):
        single = model.trace_of((layer,), grid, name)
        maps.append(row(single, 0, query).cpu())
        del layer, single
    return torch.stack(maps)
