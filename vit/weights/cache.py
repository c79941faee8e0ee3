"""Where converted weights are kept, and how they are written so that no reader sees half a file."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from kernels import cache_folder as folders
from vit.weights.errors import WeightsError
from vit.weights.tensors import TensorFile

FORMAT_VERSION = "1"
"""Part of every kept file; raise it when names or layout change, and old files are converted anew."""


def cache_folder() -> Path:
    """FLASHLENS_CACHE, or this system's place for files that can be made again; read at each call.

    Raises:
        WeightsError: FLASHLENS_CACHE is not set and this user has no home folder.
    """
    try:
        return folders.cache_folder()
    except RuntimeError:  # a user without a home folder, as in some containers
        raise WeightsError(
            "There is no home folder to keep the weights in; set FLASHLENS_CACHE to a folder."
        ) from None


def read_kept(path: Path, source_sha256: str) -> dict[str, Tensor] | None:
    """The kept tensors, or None where the file is missing, damaged, or made from something else."""
    try:
        file = TensorFile(path)
    except WeightsError:
        return None
    labels = {"format_version": FORMAT_VERSION, "source_sha256": source_sha256}
    if any(file.metadata.get(key) != value for key, value in labels.items()):
        return None
    tensors = {name: file[name] for name in file.shapes}
    return tensors if file.metadata.get("content_sha256") == digest(tensors) else None


def keep(path: Path, tensors: Mapping[str, Tensor], source_sha256: str) -> None:
    """Write the tensors beside `path` and move them there in one step.

    Raises:
        OSError: the folder cannot be made or written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    labels = {
        "format_version": FORMAT_VERSION,
        "source_sha256": source_sha256,
        "content_sha256": digest(tensors),
    }
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.touch()  # made by us, so that it gets this user's usual permissions
        permissions = part.stat().st_mode
        write(part, tensors, labels)
        part.chmod(permissions)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write(path: Path, tensors: Mapping[str, Tensor], labels: dict[str, str]) -> None:
    """One safetensors file.

    Raises:
        OSError: it could not be written.
    """
    try:
        save_file(dict(tensors), path, metadata=labels)
    except Exception as error:  # safetensors has one exception type for a full disk and all else
        raise OSError(str(error)) from error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """sha256 over the names, shapes and bytes of all tensors, in the order of their names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().view(-1).numpy().data)
    return total.hexdigest()
