"""Safetensors files: opened, checked and handed out without being copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from vit.weights.errors import WeightsError

FLOATS = ("F64", "F32", "F16", "BF16")


class TensorFile:
    """One safetensors file, mapped into memory; a tensor costs nothing before it is used.

    Opening reads the header only. The format checks itself: a file cut short, or one whose header
    promises more than the file holds, is refused before any tensor is made.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            WeightsError: it is not there, cannot be read, is damaged, or holds no plain floats.
        """
        try:
            self.file: Any = safe_open(path, framework="pt")
            self.metadata: dict[str, str] = self.file.metadata() or {}
            self.shapes: dict[str, list[int]] = {}
            for name in list(self.file.keys()):
                part = self.file.get_slice(name)
                self.shapes[name] = list(part.get_shape())
                if part.get_dtype() not in FLOATS:
                    raise WeightsError(
                        f"{name} in {path} is of type {part.get_dtype()}; choose a checkpoint whose"
                        " weights are floating point, not quantised."
                    )
        except FileNotFoundError:
            raise WeightsError(f"There is no file {path}.") from None
        except (OSError, SafetensorError) as error:
            raise WeightsError(
                f"{path} is not a whole safetensors file ({error}); fetch it again."
            ) from None

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of this name, a view of the file."""
        return self.file.get_tensor(name)
