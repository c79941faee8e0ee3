"""What a picture of some size will need, by formula, and what this machine has."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels import Problem, choose
from kernels.memory import available_bytes, in_words
from vit.block import Mlp
from vit.config import ViTConfig
from vit.graph import GRAPH_TOKENS, reason_against_kernels
from vit.grid import PatchGrid

__all__ = [
    "SIDES",
    "Forecast",
    "available_bytes",
    "forecast",
    "in_words",
    "is_replayed",
    "problem_of",
]

SIDES = (224, 518, 1036, 1540, 2072, 3108)
"""Lengths of the picture's longer side in pixels, all multiples of 14."""

WORKING_ROWS = 5
"""Rows of `dim` numbers per token alive at once in a block: the tokens, the normalised tokens,
attention's output by head and joined, and its projection. The MLP's slices come on top."""


@dataclass(frozen=True)
class Forecast:
    """Bytes for one picture. Formula, not measured."""

    tokens: int
    weights: int
    kept: int  # q, k, v and log-sum-exp of all layers
    working: int  # activations of one block and the picture itself
    matrices: int  # every attention matrix: layers * heads * tokens^2 numbers
    graph: int = 0  # what a graph keeps besides: what it reads, and what is copied out of it

    @property
    def ours(self) -> int:
        return self.weights + self.kept + self.working + self.graph

    @property
    def storing_all(self) -> int:
        """The same with every matrix stored, as viewers do that switch the fast kernel off."""
        return self.weights + self.working + self.matrices


def problem_of(config: ViTConfig, grid: PatchGrid, number_bytes: int) -> Problem:
    """One layer's attention of one picture on this grid."""
    tokens = len(config.prefix) + grid.patches
    dtype = {2: "float16", 4: "float32"}[number_bytes]
    return Problem(1, config.heads, tokens, tokens, config.head_dim, dtype)


def is_replayed(problem: Problem, device: torch.device) -> bool:
    """Whether a picture that sets this problem is replayed from a graph; see `vit.graph.reason_against`."""
    if device.type != "cuda" or problem.queries > GRAPH_TOKENS:
        return False
    return reason_against_kernels(choose(problem, device)) is None


def forecast(
    config: ViTConfig, grid: PatchGrid, number_bytes: int, replayed: bool = False
) -> Forecast:
    """The memory of tracing a picture on this grid; a number has 4 bytes, 2 in half precision.

    replayed: from a graph, which works in memory of its own and keeps it. Graphs of other sizes come on top; they
    are not among what is free.
    """
    tokens = len(config.prefix) + grid.patches
    # A layer: qkv and output 4 dim^2, MLP 2 dim * mlp_dim; biases and norms are below 1 %.
    block = 4 * config.dim**2 + 2 * config.dim * config.mlp_dim
    table = config.dim * (config.position_grid**2 + 3 * config.patch**2)
    # The hidden layer of one slice, before its GELU and after it.
    hidden = 2 * min(tokens, Mlp.SLICE) * config.mlp_dim
    pixels = 3 * grid.input_size[0] * grid.input_size[1]
    kept = config.layers * tokens * (3 * config.dim * number_bytes + 4 * config.heads)
    # A graph's own pixels and last hidden state, and positions where those of the weights are not of this grid.
    native = (grid.rows, grid.columns) == (config.position_grid, config.position_grid)
    places = pixels + (tokens + (0 if native else grid.patches)) * config.dim
    return Forecast(
        tokens=tokens,
        weights=(config.layers * block + table) * number_bytes,
        kept=kept,
        working=(WORKING_ROWS * tokens * config.dim + hidden + pixels) * number_bytes,
        matrices=config.layers * config.heads * tokens**2 * number_bytes,
        graph=kept + places * number_bytes if replayed else 0,
    )
