"""A Vision Transformer small enough to read; every block's attention runs in `kernels.attention`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels import Problem, attention, choose
from vit.config import ViTConfig
from vit.grid import PatchGrid
from vit.image import Photo
from vit.memory import give_back_freed
from vit.trace import LayerTrace, Trace

Progress = Callable[[int, int], None]

TIDY_BYTES = 64 * 2**20
"""How much a run on the CPU keeps before it gives the memory freed in between back to the system."""


class PatchEmbedding(nn.Module):
    """Picture to tokens: class token, registers, then patches row by row, with positions added."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Conv2d(3, config.dim, kernel_size=config.patch, stride=config.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.registers = nn.Parameter(torch.zeros(1, config.registers, config.dim))
        self.class_position = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.patch_positions = nn.Parameter(torch.zeros(1, config.position_grid**2, config.dim))

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels [batch, 3, height, width] -> tokens [batch, tokens, dim]."""
        patches = self.projection(pixels)  # [batch, dim, rows, columns]
        rows, columns = patches.shape[-2:]
        patches = patches.flatten(2).transpose(1, 2) + self.positions(rows, columns)
        batch = len(patches)
        class_token = (self.class_token + self.class_position).expand(batch, -1, -1)
        return torch.cat([class_token, self.registers.expand(batch, -1, -1), patches], dim=1)

    def positions(self, rows: int, columns: int) -> Tensor:
        """The position table for a grid of rows x columns, [1, rows * columns, dim].

        Bicubic, half-pixel centres, in float32, as the DINOv2 release does; it antialiases for its
        models with registers only.
        """
        side = self.config.position_grid
        if (rows, columns) == (side, side):
            return self.patch_positions
        table = self.patch_positions.reshape(1, side, side, -1).permute(0, 3, 1, 2)
        resized = F.interpolate(
            table.float(),
            size=(rows, columns),
            mode="bicubic",
            antialias=self.config.position_antialias,
        )
        return resized.flatten(2).transpose(1, 2).to(self.patch_positions.dtype)


class Attention(nn.Module):
    """Multi-head self-attention that hands back what any row of its matrix can be rebuilt from."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.output = nn.Linear(config.dim, config.dim)

    def forward(self, tokens: Tensor, implementation: str) -> tuple[Tensor, LayerTrace]:
        """tokens [batch, tokens, dim] -> the same shape, and the layer's trace."""
        batch, count, dim = tokens.shape
        qkv = self.qkv(tokens).view(batch, count, 3, self.heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # views, each [batch, heads, tokens, head_dim]
        mixed, log_sum_exp = attention(q, k, v, implementation=implementation)
        mixed = mixed.transpose(1, 2).reshape(batch, count, dim)
        return self.output(mixed), LayerTrace(q, k, v, log_sum_exp)


class Mlp(nn.Module):
    """Two linear layers with a GELU between them, a slice of tokens at a time.

    Tokens do not meet here, so the widened tokens of a large picture never need to exist all at once.
    """

    SLICE = 4096

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.dim, config.mlp_dim)
        self.narrow = nn.Linear(config.mlp_dim, config.dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [batch, tokens, dim] -> the same shape."""
        if tokens.shape[1] <= self.SLICE:
            return self.narrow(F.gelu(self.widen(tokens)))
        result = torch.empty_like(tokens)
        for start in range(0, tokens.shape[1], self.SLICE):
            part = slice(start, start + self.SLICE)
            result[:, part] = self.narrow(F.gelu(self.widen(tokens[:, part])))
        return result


class Block(nn.Module):
    """Pre-norm transformer block with LayerScale (Touvron et al. 2021)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.scale1 = nn.Parameter(torch.ones(config.dim))
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = Mlp(config)
        self.scale2 = nn.Parameter(torch.ones(config.dim))

    def attend(self, tokens: Tensor, implementation: str) -> tuple[Tensor, LayerTrace]:
        """The first half: tokens exchange what they hold; also the layer's trace."""
        mixed, trace = self.attention(self.norm1(tokens), implementation)
        return torch.addcmul(tokens, self.scale1, mixed), trace

    def think(self, tokens: Tensor) -> Tensor:
        """The second half: each token for itself."""
        return torch.addcmul(tokens, self.scale2, self.mlp(self.norm2(tokens)))


class VisionTransformer(nn.Module):
    """The whole model. It keeps no state between pictures: all that a run leaves is its Trace."""

    def __init__(self, config: ViTConfig, name: str = "vit") -> None:
        super().__init__()
        self.config, self.name = config, name
        self.embedding = PatchEmbedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)

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
        """pixels [batch, 3, height, width], normalised -> last hidden state [batch, tokens, dim]."""
        tokens = self.embedding(pixels)
        for block in self.stack:
            tokens = block.think(block.attend(tokens, implementation)[0])
        return self.norm(tokens)

    @torch.inference_mode()
    def layers(self, pixels: Tensor, implementation: str = "auto") -> Iterator[LayerTrace]:
        """Run the blocks one by one and hand out each layer's trace as soon as it is there.

        What the caller does not keep is freed before the layer's second half, so the maps of one query
        can be read from a picture of any size with one layer in memory, and a caller may stop between
        two layers.
        """
        tokens = self.embedding(pixels)
        del pixels
        for block in self.stack:
            tokens, trace = block.attend(tokens, implementation)
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
        pixels, grid = self.prepare(photo, side)
        name = self.choose_implementation(grid) if implementation == "auto" else implementation
        last = self.config.layers - 1 if only is None else self.layer_index(only)
        kept: list[LayerTrace] = []
        on_cpu, untidy = self.device.type == "cpu", 0
        layers = islice(self.layers(pixels, name), last + 1)
        del pixels
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
        return self.trace_of(tuple(kept), grid, name)

    def prepare(self, photo: Photo, side: int) -> tuple[Tensor, PatchGrid]:
        """The photo as this model's input [1, 3, height, width], and the grid that lies over it."""
        grid = photo.grid(side, self.config.patch)
        pixels = photo.pixels(grid, self.config.mean, self.config.std, self.device)
        return pixels.to(self.dtype), grid

    def trace_of(
        self, layers: tuple[LayerTrace, ...], grid: PatchGrid, implementation: str
    ) -> Trace:
        """These layers with what is needed to read them."""
        config = self.config
        return Trace(layers, grid, config.prefix, config.head_dim**-0.5, implementation, self.name)

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
        config, tokens = self.config, len(self.config.prefix) + grid.patches
        dtype = str(self.dtype).removeprefix("torch.")
        return Problem(1, config.heads, tokens, tokens, config.head_dim, dtype)
