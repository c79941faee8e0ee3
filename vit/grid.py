"""Where each patch lies on the picture; the only place that turns pixels into patches and back."""

from __future__ import annotations

from dataclasses import dataclass

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels of the upright picture


@dataclass(frozen=True)
class PatchGrid:
    """A grid of rows x columns patches laid over `box` of the upright picture.

    `patch` is the patch's side in pixels of the model's own input, so the input is
    `rows * patch` high and `columns * patch` wide. On the picture a patch measures
    `patch_height` x `patch_width` pixels, which need not be whole numbers.
    """

    rows: int
    columns: int
    patch: int
    box: Box

    @property
    def patches(self) -> int:
        return self.rows * self.columns

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the model's input in pixels."""
        return self.rows * self.patch, self.columns * self.patch

    @property
    def patch_height(self) -> float:
        return (self.box[3] - self.box[1]) / self.rows

    @property
    def patch_width(self) -> float:
        return (self.box[2] - self.box[0]) / self.columns

    def box_of(self, row: int, column: int) -> Box:
        """The patch's box on the picture, in pixels."""
        left, top = self.box[0], self.box[1]
        height, width = self.patch_height, self.patch_width
        return (
            left + column * width,
            top + row * height,
            left + (column + 1) * width,
            top + (row + 1) * height,
        )

    def patch_at(self, x: float, y: float) -> tuple[int, int] | None:
        """The (row, column) under the picture's pixel (x, y), or None outside the grid."""
        row = int((y - self.box[1]) // self.patch_height)
        column = int((x - self.box[0]) // self.patch_width)
        inside = 0 <= row < self.rows and 0 <= column < self.columns
        return (row, column) if inside else None
