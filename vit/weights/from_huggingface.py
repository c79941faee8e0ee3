"""Checkpoints as the Hugging Face hub and `save_pretrained` lay them out, DINOv2 with or without registers.

A folder holds config.json and model.safetensors, or the latter in shards with an index;
preprocessor_config.json, where there is one, says how pixels are normalised. Pickled weights
(*.bin, *.pth) can run code when they are opened, so they are never read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor

from vit.config import IMAGENET_MEAN, IMAGENET_STD, ViTConfig
from vit.weights.checkpoint import Checkpoint, Progress, check_shapes, silent
from vit.weights.errors import WeightsError
from vit.weights.names import from_dinov2, theirs, used
from vit.weights.tensors import TensorFile

SUPPORTED = ("dinov2", "dinov2_with_registers")
Rgb = tuple[float, float, float]
INDEX = "model.safetensors.index.json"
MOST_LAYERS = 200  # DINOv2's largest has 40; a damaged config must not fill the memory


def recognises(path: Path) -> bool:
    """True for a folder, or a safetensors file in one."""
    return path.is_dir() or path.suffix == ".safetensors"


def read(path: Path, progress: Progress = silent) -> Checkpoint:
    """Read a folder, or the folder that a model.safetensors lies in.

    Raises:
        WeightsError: a file is missing or damaged, or the model is of a kind that we do not have.
    """
    folder = path if path.is_dir() else path.parent
    progress(0.0, "Reading the checkpoint's settings.")
    config = read_config(folder)
    files = tensor_files(folder) if path.is_dir() else [TensorFile(path)]
    tensors = Shards({name: file for file in files for name in file.shapes})
    check_shapes(theirs(config), used(tensors.shapes))
    progress(0.2, "Reading the checkpoint's weights.")
    return Checkpoint(config, from_dinov2(tensors, config))


@dataclass(frozen=True)
class Shards:
    """Tensors by name, whichever file each lies in."""

    files: Mapping[str, TensorFile]

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {name: file.shapes[name] for name, file in self.files.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.files[name][name]


def tensor_files(folder: Path) -> list[TensorFile]:
    """model.safetensors, or every shard that its index names."""
    if (folder / "model.safetensors").is_file() or not (folder / INDEX).is_file():
        return [TensorFile(folder / "model.safetensors")]
    weight_map = read_json(folder / INDEX).get("weight_map")
    names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    # A shard lies beside its index; anything else could be any file of this machine.
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise WeightsError(
            f"{folder / INDEX} does not name its shards; fetch the checkpoint again."
        )
    return [TensorFile(folder / name) for name in sorted(names)]


def read_config(folder: Path) -> ViTConfig:
    """The model's numbers, none of them assumed.

    Raises:
        WeightsError: config.json is missing, damaged, or describes another kind of model.
    """
    path = folder / "config.json"
    settings = read_json(path)
    kind = settings.get("model_type")
    if kind not in SUPPORTED:
        raise WeightsError(
            f"{path} describes a model of type {kind!r}; supported are {' and '.join(SUPPORTED)}."
        )
    refuse_unknown_parts(path, settings)
    number = Numbers(path, settings)
    dim, heads, patch = (
        number.whole(k) for k in ("hidden_size", "num_attention_heads", "patch_size")
    )
    layers, image = number.whole("num_hidden_layers"), number.whole("image_size")
    registers = number.whole("num_register_tokens") if kind == "dinov2_with_registers" else 0
    if layers > MOST_LAYERS or dim % heads or image < patch:
        raise WeightsError(f"The sizes in {path} do not fit together; fetch the checkpoint again.")
    mean, std = normalisation(folder)
    return ViTConfig(
        dim=dim,
        layers=layers,
        heads=heads,
        patch=patch,
        mlp_dim=int(dim * number.positive("mlp_ratio")),
        registers=registers,
        position_grid=image // patch,
        # The DINOv2 release resizes the positions of its register models with antialiasing.
        position_antialias=registers > 0,
        norm_eps=number.positive("layer_norm_eps"),
        mean=mean,
        std=std,
    )


def refuse_unknown_parts(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse what our blocks do not have, rather than compute something else.

    Raises:
        WeightsError: the model has such a part.
    """
    if settings.get("use_swiglu_ffn"):
        raise WeightsError(
            f"{path} asks for a SwiGLU feed-forward layer (the giant model), which is not supported;"
            " choose the small, base or large one."
        )
    wanted = {"hidden_act": "gelu", "qkv_bias": True, "num_channels": 3}
    for key, value in wanted.items():
        if settings.get(key, value) != value:
            raise WeightsError(
                f"{path} has {key} = {settings[key]!r}; only {value!r} is supported."
            )


@dataclass(frozen=True)
class Numbers:
    """The numbers of a settings file, each checked as it is read."""

    path: Path
    settings: Mapping[str, Any]

    def whole(self, key: str) -> int:
        """A whole number above zero; a pair of equal ones counts as one."""
        value = self.settings.get(key)
        if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
            value = value[0]
        if type(value) is not int or not 0 < value < 2**20:
            raise WeightsError(
                f"{self.path} should give {key} as a whole number above zero, not {value!r}."
            )
        return value

    def positive(self, key: str) -> float:
        """A number above zero."""
        value = self.settings.get(key)
        if not is_number(value) or value <= 0:
            raise WeightsError(
                f"{self.path} should give {key} as a number above zero, not {value!r}."
            )
        return float(value)


def normalisation(folder: Path) -> tuple[Rgb, Rgb]:
    """Mean and standard deviation by which pixels in 0 to 1 are normalised."""
    path = folder / "preprocessor_config.json"
    settings = read_json(path) if path.is_file() else {}
    if settings.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    mean = three_numbers(path, settings, "image_mean", IMAGENET_MEAN)
    std = three_numbers(path, settings, "image_std", IMAGENET_STD)
    if min(std) <= 0:
        raise WeightsError(f"{path} should give image_std as numbers above zero, not {list(std)}.")
    return mean, std


def three_numbers(path: Path, settings: Mapping[str, Any], key: str, usual: Rgb) -> Rgb:
    """One number for each of red, green and blue."""
    value = settings.get(key, usual)
    right = isinstance(value, list | tuple) and len(value) == 3
    if not right or not all(is_number(v) for v in value):
        raise WeightsError(f"{path} should give {key} as three numbers, not {value!r}.")
    red, green, blue = (float(v) for v in value)
    return red, green, blue


def is_number(value: object) -> TypeGuard[float]:
    """True for a number of a sensible size; JSON's true and false are none, nor are NaN and infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file whose top is an object.

    Raises:
        WeightsError: it is missing or is no such file.
    """
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise WeightsError(
            f"There is no {path.name} in {path.parent}; choose a folder with config.json and model.safetensors."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}); fetch it again.") from None
    if not isinstance(settings, dict):
        raise WeightsError(f"{path} should hold a JSON object; fetch it again.")
    return settings
