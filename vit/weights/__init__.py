"""Checkpoints in, ready models out: `load_model`, and the formats that it reads."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import torch

from vit.config import PRESETS
from vit.model import VisionTransformer
from vit.weights import from_huggingface, from_onnx, hub, packaged
from vit.weights.checkpoint import Checkpoint, Progress, build, silent
from vit.weights.errors import WeightsError

__all__ = ["FORMATS", "WeightsError", "load_model"]

FORMATS: dict[str, ModuleType] = {
    "onnx": from_onnx,
    "huggingface": from_huggingface,
}
"""Every format of a local path; each module has `recognises(path)` and `read(path, progress)`."""


def load_model(
    name: str | os.PathLike[str] = "dinov2-small",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> VisionTransformer:
    """A model ready to look at pictures: eval mode, no gradients.

    Args:
        name: a preset; or a folder or file in a format of FORMATS; or "owner/name", optionally
            "owner/name@revision", of the Hugging Face hub. Only the last may use the network.
        device: None takes the GPU where there is one.
        dtype: None takes float16 on a GPU and float32 elsewhere.
        progress: called as progress(done, sentence), done from 0 to 1.

    Raises:
        WeightsError: the weights cannot be used; one sentence says why and what to do.
    """
    report = progress or silent
    device = choose_device(device)
    dtype = dtype or (torch.float16 if device.type == "cuda" else torch.float32)
    checkpoint = read_checkpoint(name, lambda done, sentence: report(0.8 * done, sentence))
    report(0.8, "Building the model.")
    model = build(checkpoint, os.fspath(name), device, dtype)
    report(1.0, "The model is ready.")
    return model


def read_checkpoint(name: str | os.PathLike[str], progress: Progress) -> Checkpoint:
    """The weights of this name, wherever they are."""
    if name in PRESETS:
        return packaged.load(str(name), progress)
    path = existing_path(name)
    if path is not None:
        return read_path(path, progress)
    if isinstance(name, str) and hub.HUB_ID.fullmatch(name):
        return from_huggingface.read(hub.fetch(name, progress), progress)
    raise WeightsError(
        f"There is no model {str(name)[:80]!r}; choose {', '.join(PRESETS)}, a folder with config.json and"
        " model.safetensors, or a hub id like owner/name."
    )


def existing_path(name: str | os.PathLike[str]) -> Path | None:
    """The name as a path, where something is there."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (
        OSError,
        RuntimeError,
    ):  # too long for a path, closed to us, or ~someone who is not there
        return None


def read_path(path: Path, progress: Progress) -> Checkpoint:
    """A local checkpoint, through the first format that recognises it."""
    for checkpoint_format in FORMATS.values():
        if checkpoint_format.recognises(path):
            return checkpoint_format.read(path, progress)
    raise WeightsError(
        f"{path} is no checkpoint that can be read; choose a folder with config.json and model.safetensors."
    )


def choose_device(device: torch.device | str | None) -> torch.device:
    """The device that was asked for, or the best one here.

    Raises:
        WeightsError: it is not on this machine.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise WeightsError(f"There is no device {device!r}; choose cpu or cuda.") from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise WeightsError(f"This machine has no device {chosen}; choose cpu.")
    return chosen
