"""From a picture to the tokens that the blocks see."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit.config import ViTConfig


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

    def forward(self, pixels: Tensor, positions: Tensor | None = None) -> Tensor:
        """pixels [batch, 3, height, width] -> tokens [batch, tokens, dim].

        `positions` are those of this grid where they are at hand; None makes them.
        """
        batch, _, height, width = pixels.shape
        rows, columns = height // self.config.patch, width // self.config.patch
        if positions is None:
            positions = self.positions(rows, columns)
        patches = self.project(pixels, rows, columns) + positions
        class_token = (self.class_token + self.class_position).expand(batch, -1, -1)
        return torch.cat([class_token, self.registers.expand(batch, -1, -1), patches], dim=1)

    def project(self, pixels: Tensor, rows: int, columns: int) -> Tensor:
        """Each patch to a token, [batch, rows * columns, dim].

        The patches do not overlap, so the convolution is one matrix product; on a GPU that is far faster.
        """
        if not pixels.is_cuda:
            return self.projection(pixels).flatten(2).transpose(1, 2)
        weight = self.projection.weight.flatten(1)
        return F.linear(self.cut(pixels, rows, columns), weight, self.projection.bias)

    def cut(self, pixels: Tensor, rows: int, columns: int) -> Tensor:
        """The pixels of each patch side by side, [batch, rows * columns, 3 * patch * patch]."""
        patch = self.config.patch
        whole = pixels[..., : rows * patch, : columns * patch]
        squares = whole.unflatten(-1, (columns, patch)).unflatten(-3, (rows, patch))
        return squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

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
