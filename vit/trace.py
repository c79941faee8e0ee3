"""What a forward pass leaves behind: q, k, v and the log-sum-exp of each layer, and the patch grid."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vit.grid import PatchGrid

Query = tuple[int, int] | str
"""A patch as (row, column), or a prefix token by name: "class" (also "cls"), "register 1", ..."""


@dataclass(frozen=True)
class LayerTrace:
    """One attention layer. q, k, v [1, heads, tokens, head_dim]; log_sum_exp [1, heads, tokens], float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_sum_exp: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that this layer keeps."""
        tensors = (self.q, self.k, self.v, self.log_sum_exp)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True)
class Trace:
    """One picture's way through the model. The N x N matrices were never stored; see `vit.maps`."""

    layers: tuple[LayerTrace, ...]
    grid: PatchGrid
    prefix: tuple[str, ...]
    scale: float
    implementation: str
    model: str

    @property
    def heads(self) -> int:
        return self.layers[0].q.shape[1]

    @property
    def tokens(self) -> int:
        return len(self.prefix) + self.grid.patches

    @property
    def nbytes(self) -> int:
        """Bytes that this trace keeps, q, k, v and log-sum-exp of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def token(self, query: Query) -> int:
        """The token's place in the sequence [prefix, patches].

        Raises:
            ValueError: the grid has no such patch, or the model no such token.
        """
        return token_index(query, self.prefix, self.grid)


def token_index(query: Query, prefix: tuple[str, ...], grid: PatchGrid) -> int:
    """The place of a patch or of a named prefix token in the sequence [prefix, patches, row by row]."""
    if isinstance(query, str):
        name = "class" if query == "cls" else query
        if name not in prefix:
            raise ValueError(f"this model has no token {query!r}; it has {', '.join(prefix)}")
        return prefix.index(name)
    row, column = query
    if not (0 <= row < grid.rows and 0 <= column < grid.columns):
        raise ValueError(
            f"patch {row},{column} is outside the grid of {grid.rows} rows and {grid.columns} columns"
        )
    return len(prefix) + row * grid.columns + column
