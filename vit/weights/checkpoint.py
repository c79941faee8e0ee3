"""What every format reads a checkpoint into, and how that becomes a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vit.config import ViTConfig
from vit.model import VisionTransformer
from vit.weights.errors import WeightsError

Progress = Callable[[float, str], None]
"""(done, sentence): done runs from 0 to 1, the sentence says what is happening."""


def silent(done: float, sentence: str) -> None:
    """The progress of a caller who asked for none."""


@dataclass(frozen=True)
class Checkpoint:
    """One set of weights under our own names, the keys of `VisionTransformer.state_dict()`.

    `tensors` may hand out views of a file on disk; nothing here writes into them.
    """

    config: ViTConfig
    tensors: Mapping[str, Tensor]


def empty_model(config: ViTConfig, name: str = "vit") -> VisionTransformer:
    """The model without memory for its weights: shapes only, on torch's meta device."""
    with torch.device("meta"):
        return VisionTransformer(config, name)


def build(
    checkpoint: Checkpoint, name: str, device: torch.device, dtype: torch.dtype
) -> VisionTransformer:
    """The model with these weights, for looking only: eval mode, no gradients.

    The tensors become the parameters themselves, so that no second copy is ever held; only those
    of another device or dtype are copied, one by one.

    Raises:
        WeightsError: a tensor is missing, left over, or of another shape than the config says.
    """
    model = empty_model(checkpoint.config, name)
    check_shapes(shapes(model.state_dict()), shapes(checkpoint.tensors))
    moved = {key: value.to(device, dtype) for key, value in checkpoint.tensors.items()}
    model.load_state_dict(moved, strict=True, assign=True)
    return model.requires_grad_(False).eval()


def fits(checkpoint: Checkpoint) -> bool:
    """True where names and shapes are those of the model that the config describes."""
    return shapes(empty_model(checkpoint.config).state_dict()) == shapes(checkpoint.tensors)


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """The shape of each tensor, by name."""
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def check_shapes(wanted: Mapping[str, list[int]], found: Mapping[str, list[int]]) -> None:
    """Refuse any name or shape that differs, naming the first one.

    Raises:
        WeightsError: the two tables are not the same.
    """
    for sentence in differences(wanted, found):
        raise WeightsError(f"These weights do not fit the model that they describe: {sentence}.")


def differences(wanted: Mapping[str, list[int]], found: Mapping[str, list[int]]) -> Iterator[str]:
    """Each difference between the two tables of shapes, in words."""
    for name in sorted(wanted.keys() - found.keys()):
        yield f"{name} is missing"
    for name in sorted(found.keys() - wanted.keys()):
        yield f"{name} is not a part of the model"
    for name, shape in wanted.items():
        if found[name] != shape:
            yield f"{name} should have the shape {shape} and has {found[name]}"
