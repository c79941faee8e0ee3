"""The numbers that make one Vision Transformer different from another."""

from __future__ import annotations

from dataclasses import dataclass

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ViTConfig:
    """Sizes of a Vision Transformer; Dosovitskiy et al. 2021, Oquab et al. 2023 (DINOv2).

    `position_grid` is the side of the square grid, in patches, that the position table was trained on;
    `position_antialias` smooths it where a smaller grid is wanted, as the register models were trained.
    `registers` counts the extra tokens of Darcet et al. 2024 between the class token and the patches.
    """

    dim: int
    layers: int
    heads: int
    patch: int = 14
    mlp_dim: int = 0
    registers: int = 0
    position_grid: int = 37
    position_antialias: bool = False
    norm_eps: float = 1e-6
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} must be a multiple of heads {self.heads}")
        if not self.mlp_dim:
            object.__setattr__(self, "mlp_dim", 4 * self.dim)

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def prefix(self) -> tuple[str, ...]:
        """Names of the tokens that stand before the patches, in order."""
        return ("class", *(f"register {i}" for i in range(1, self.registers + 1)))


PRESETS = {
    "dinov2-small": ViTConfig(dim=384, layers=12, heads=6),
}
