"""One tile of queries, cut out of its head with the keys that its program reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import reference
from kernels.naive.tile_sizes import softmax_tiles, stored_columns
from kernels.problem import Problem
from kernels.tile_sizes import Tiles, padded
from kernels.traffic.sizes import covered, tiles_in


@dataclass(frozen=True)
class Cut:
    """What a program of the whole problem sees, and where it stands in that problem.

    Keys behind the last tile that the program visits are cut off, no other: tiles, masks and bytes are those
    of this program in the whole problem. The kernel is told where the first query stands.
    """

    implementation: str
    q: Tensor  # [rows, dim]
    k: Tensor  # [keys, dim]
    v: Tensor
    scale: float
    causal: bool
    query_start: int
    tokens: int
    tiles: Tiles

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        implementation: str,
        query_tile: int,
        tiles: Tiles,
        scale: float,
        causal: bool,
    ) -> Cut:
        """q, k, v [tokens, dim] of a head."""
        start = query_tile * tiles.block_q
        keys = tokens = q.shape[0]
        if causal and implementation != "naive":  # which computes what is hidden, too
            seen_by_any = min(tokens, start + tiles.block_q)
            keys = min(tokens, covered(seen_by_any, tiles.block_k))
        rows = slice(start, start + tiles.block_q)
        return cls(implementation, q[rows], k[:keys], v[:keys], scale, causal, start, tokens, tiles)

    @property
    def rows(self) -> int:
        return self.q.shape[0]

    @property
    def keys(self) -> int:
        return self.k.shape[0]

    @property
    def width(self) -> int:
        return self.q.shape[1]

    @property
    def block_width(self) -> int:
        """The width of a tile of vectors."""
        return padded(self.width)

    @property
    def steps(self) -> int:
        """Tiles of keys."""
        return tiles_in(self.keys, self.tiles.block_k)

    @property
    def problem(self) -> Problem:
        """Whose bytes are those of this walk: every tile is visited, as without a mask."""
        dtype = str(self.q.dtype).removeprefix("torch.")
        return Problem(1, 1, self.rows, self.keys, self.width, dtype)

    @property
    def whole(self) -> Problem:
        """The problem that it was cut from."""
        dtype = str(self.q.dtype).removeprefix("torch.")
        return Problem(1, 1, self.tokens, self.tokens, self.width, dtype, self.causal)

    def span(self, step: int) -> tuple[int, int]:
        """The first key of a step and its number of keys; fa3 begins with the last tile."""
        tile = self.steps - 1 - step if self.implementation == "fa3" else step
        start = tile * self.tiles.block_k
        return start, min(self.tiles.block_k, self.keys - start)

    def empty_pages(self, columns: int) -> Tensor:
        """Room for what a kernel writes out, float32 [steps, block_q, columns]; NaN until it is written."""
        return self.empty(self.steps, self.tiles.block_q, columns)

    def empty_softmax_page(self) -> Tensor:
        """The same for naive's softmax, whose programs take whole rows, in tiles of their own: [1, rows, 2]."""
        block = softmax_tiles(stored_columns(self.keys)).block_q
        return self.empty(1, covered(self.rows, block), 2)

    def empty(self, *size: int) -> Tensor:
        return torch.full(size, torch.nan, dtype=torch.float32, device=self.q.device)

    def exact(self, grad_output: Tensor | None = None) -> Tensor:
        """The output of these rows in float64, [rows, dim], on the CPU; with grad_output [rows, dim] their dQ."""
        seen = slice(0, self.query_start + self.rows if self.causal else self.tokens)
        q, k, v = (
            t.cpu().double()[None, None] for t in (self.q, self.k[seen], self.v[seen])
        )  # the mask is aligned to the last row and the last key that it sees
        if grad_output is None:
            return reference.attention(q, k, v, self.scale, self.causal)[0][0, 0]
        grad = grad_output.cpu().double()[None, None]
        return reference.gradients(q, k, v, self.scale, self.causal, grad)[0][0, 0]
