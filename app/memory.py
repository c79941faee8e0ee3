"""What a picture of some size will need, by formula, and what this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from vit.config import ViTConfig
from vit.grid import PatchGrid
from vit.model import Mlp

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


def available_bytes(device: torch.device) -> int:
    """Memory that is free for one more picture."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free, left = psutil.virtual_memory().available, free_in_container()
    return free if left is None else min(free, left)


def free_in_container() -> int | None:
    """What is left of a container's limit; files that the kernel could drop count as free."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text("ascii").strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text("ascii"))
        parts = dict(
            line.split() for line in (group / "memory.stat").read_text("ascii").splitlines()
        )
        return int(limit) - used + int(parts.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


def in_words(nbytes: float) -> str:
    """1370 -> "1.4 kB"; decimal units, as memory is sold."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            amount = nbytes / size
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{nbytes:.0f} bytes"
