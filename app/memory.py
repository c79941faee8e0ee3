"""What a picture of some size will need, by formula, and what this machine has."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.memory import available_bytes, in_words
from vit.block import Mlp
from vit.config import ViTConfig
from vit.grid import PatchGrid

__all__ = ["SIDES", "Forecast", "available_bytes", "forecast", "in_words"]

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

    @property
    def ours(self) -> int:
        return self.weights + self.kept + self.working

    @property
    def storing_all(self) -> int:
        """The same with every matrix stored, as viewers do that switch the fast kernel off."""
        return self.weights + self.working + self.matrices


def forecast(config: ViTConfig, grid: PatchGrid, number_bytes: int) -> Forecast:
    """The memory of tracing a picture on this grid; a number has 4 bytes, 2 in half precision."""
    tokens = len(config.prefix) + grid.patches
    # A layer: qkv and output 4 dim^2, MLP 2 dim * mlp_dim; biases and norms are below 1 %.
    block = 4 * config.dim**2 + 2 * config.dim * config.mlp_dim
    table = config.dim * (config.position_grid**2 + 3 * config.patch**2)
    # The hidden layer of one slice, before its GELU and after it.
    hidden = 2 * min(tokens, Mlp.SLICE) * config.mlp_dim
    pixels = 3 * grid.input_size[0] * grid.input_size[1]
    return Forecast(
        tokens=tokens,
        weights=(config.layers * block + table) * number_bytes,
        kept=config.layers * tokens * (3 * config.dim * number_bytes + 4 * config.heads),
        working=(WORKING_ROWS * tokens * config.dim + hidden + pixels) * number_bytes,
        matrices=config.layers * config.heads * tokens**2 * number_bytes,
    )
