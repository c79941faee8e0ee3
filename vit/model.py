"""A Vision Transformer small enough to read; every block's attention runs in `kernels.attention`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

import torch
from torch import Tensor, nn

from kernels import Problem, choose
from vit.block import Block, Norm
from vit.config import ViTConfig
from vit.embedding import PatchEmbedding
from vit.graph import Graphs, reason_against
from vit.grid import PatchGrid
from vit.image import Photo
from vit.memory import give_back_freed
from vit.trace import LayerTrace, Trace

Progress = Callable[[int, int], None]

TIDY_BYTES = 64 * 2**20
"""How much a run on the CPU keeps before it gives the memory freed in between back to the system."""


class VisionTransformer(nn.Module):
    """The whole model. It keeps nothing of a picture: all that a run leaves is its Trace.

    On a GPU it keeps the graphs of the sizes seen last, see `vit.graph`; `graphs.clear()` frees them.
    """

    def __init__(self, config: ViTConfig, name: str = "vit") -> None:
        super().__init__()
        self.config, self.name = config, name
        self.embedding = PatchEmbedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = Norm(config.dim, eps=config.norm_eps)
        self.graphs = Graphs()  # Graphs(0) keeps none: every run is launched kernel by kernel

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> VisionTransformer:
        """What .to(), .half() and their like do; graphs of the weights as they were go with them."""
        self.graphs.clear()
        return super()._apply(fn, recurse)

    @property
    def stack(self) -> Iterable[Block]:
        """The blocks with their type, which `nn.ModuleList` forgets."""
        return cast("Iterable[Block]", self.blocks)

    @property
    def device(self) -> torch.device:
        return self.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.norm.weight.dtype

    def forward(self, pixels: Tensor, implementation: str = "auto") -> Tensor:
        """pixels [batch, 3, height, width], normalised -> last hidden state [batch, tokens, dim].

        Where `vit.graph.reason_against` knows none, the run is replayed from a graph.
        """
        if reason_against(self, pixels, implementation) is None:
            return self.graphs.hidden(self, pixels, implementation)
        tokens = self.embedding(pixels)
        for block in self.stack:
            tokens = block.think(block.attend(tokens, implementation)[0])
        return self.norm(tokens)

    def run_into(
        self, pixels: Tensor, positions: Tensor, implementation: str, qkv: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The same, with q, k and v of every layer left in `qkv` [layers, batch, tokens, 3 * dim].

        -> last hidden state, and every layer's log-sum-exp [batch, heads, tokens].
        """
        tokens, sums = self.embedding(pixels, positions), []
        for block, into in zip(self.stack, qkv, strict=True):
            tokens, trace = block.attend(tokens, implementation, into)
            sums.append(trace.log_sum_exp)
            tokens = block.think(tokens)
        return self.norm(tokens), sums

    @torch.inference_mode()
    def layers(
        self, pixels: Tensor, implementation: str = "auto", into: Tensor | None = None
    ) -> Iterator[LayerTrace]:
        """Run the blocks one by one and hand out each layer's trace as soon as it is there.

        What the caller does not keep is freed before the layer's second half, so the maps of one query
        can be read from a picture of any size with one layer in memory, and a caller may stop between
        two layers. Who keeps them all may say where: `into` [layers, batch, tokens, 3 * dim].
        """
        tokens = self.embedding(pixels)
        del pixels
        for number, block in enumerate(self.stack):
            place = None if into is None else into[number]
            tokens, trace = block.attend(tokens, implementation, place)
            yield trace
            del trace
            tokens = block.think(tokens)

    def trace(
        self,
        photo: Photo,
        side: int = 518,
        implementation: str = "auto",
        progress: Progress | None = None,
        only: int | None = None,
    ) -> Trace:
        """Run the model on a photo whose longer side is resized to `side` pixels.

        Every layer is kept; with `only`, that layer alone, and the run ends with it.
        `progress(done, of)` is called after each layer; an exception raised in it ends the run.

        Raises:
            ValueError: the side is too small, there is no such layer, or the implementation cannot run.
        """
        grid = photo.grid(side, self.config.patch)
        name = self.named(implementation, grid)
        only = None if only is None else self.layer_index(only)
        layers = self.kept_layers(self.input_of(photo, grid), name, progress, only)
        return self.trace_of(layers, grid, name)

    def kept_layers(
        self,
        pixels: Tensor,
        implementation: str = "auto",
        progress: Progress | None = None,
        only: int | None = None,
    ) -> tuple[LayerTrace, ...]:
        """What `trace` keeps of pixels [1, 3, height, width] that are normalised already.

        Replayed from a graph where `vit.graph.reason_against` knows no reason against it; then `progress`
        is told of all layers at the end.
        """
        last = self.config.layers - 1 if only is None else only
        with torch.no_grad():  # a trace has no gradients, whichever way it is made
            reason = reason_against(self, pixels, implementation)
        if reason is None:
            kept = self.graphs.layers(self, pixels, implementation, only)
            for number in range(last + 1):
                if progress is not None:
                    progress(number + 1, last + 1)
            return kept
        kept, on_cpu, untidy = [], self.device.type == "cpu", 0
        # A GPU gives one large piece of memory faster than many.
        into = self.empty_qkv(pixels) if only is None and not on_cpu else None
        layers = islice(self.layers(pixels, implementation, into), last + 1)
        del pixels, into
        for number, layer in enumerate(layers):
            if only is None or number == last:
                kept.append(layer)
                untidy += layer.nbytes
            del layer
            if on_cpu and untidy > TIDY_BYTES:
                give_back_freed()
                untidy = 0
            if progress is not None:
                progress(number + 1, last + 1)
        return tuple(kept)

    def empty_qkv(self, pixels: Tensor) -> Tensor:
        """Room for q, k and v of every layer, [layers, batch, tokens, 3 * dim]."""
        tokens = self.tokens(self.grid_of(pixels))
        return torch.empty(
            (self.config.layers, len(pixels), tokens, 3 * self.config.dim),
            dtype=self.dtype,
            device=self.device,
        )

    def prepare(self, photo: Photo, side: int) -> tuple[Tensor, PatchGrid]:
        """The photo as this model's input [1, 3, height, width], and the grid that lies over it."""
        grid = photo.grid(side, self.config.patch)
        return self.input_of(photo, grid), grid

    def input_of(self, photo: Photo, grid: PatchGrid) -> Tensor:
        """The photo on this grid as this model's input [1, 3, height, width]."""
        config = self.config
        return photo.pixels(grid, config.mean, config.std, self.device).to(self.dtype)

    def trace_of(
        self, layers: tuple[LayerTrace, ...], grid: PatchGrid, implementation: str
    ) -> Trace:
        """These layers with what is needed to read them."""
        config = self.config
        return Trace(layers, grid, config.prefix, config.head_dim**-0.5, implementation, self.name)

    def grid_of(self, pixels: Tensor) -> PatchGrid:
        """The grid of an input that comes without its photo; its box is the input itself."""
        height, width = pixels.shape[-2:]
        patch = self.config.patch
        return PatchGrid(height // patch, width // patch, patch, (0.0, 0.0, width, height))

    def named(self, implementation: str, grid: PatchGrid) -> str:
        """The implementation's own name, also where it was asked for as "auto"."""
        return self.choose_implementation(grid) if implementation == "auto" else implementation

    def tokens(self, grid: PatchGrid) -> int:
        """Tokens of a picture on this grid: class, registers, patches."""
        return len(self.config.prefix) + grid.patches

    def choose_implementation(self, grid: PatchGrid) -> str:
        """What "auto" stands for at this size on this model's device."""
        return choose(self.problem(grid), self.device)

    def layer_index(self, layer: int) -> int:
        """The layer counted from 0; -1 is the last."""
        count = self.config.layers
        if not -count <= layer < count:
            raise ValueError(f"there is no layer {layer}; this model has layers 0 to {count - 1}")
        return layer % count

    def problem(self, grid: PatchGrid) -> Problem:
        """The attention problem that a picture on this grid sets each layer."""
        config, tokens = self.config, self.tokens(grid)
        dtype = str(self.dtype).removeprefix("torch.")
        return Problem(1, config.heads, tokens, tokens, config.head_dim, dtype)
