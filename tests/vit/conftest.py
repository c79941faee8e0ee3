"""What the tests of the model share: the packaged model, a real photo, and caches of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.vit.helpers import TinyPreset
from vit import Photo, load_image, load_model
from vit.config import PRESETS, ViTConfig
from vit.model import VisionTransformer
from vit.weights import packaged
from vit.weights.checkpoint import Checkpoint, Progress

TINY = ViTConfig(dim=12, layers=4, heads=2, position_grid=3)
SAMPLES = Path(__file__).parents[2] / "app" / "samples"


@pytest.fixture(scope="session")
def model() -> VisionTransformer:
    """The packaged model on the CPU; where it is missing the error says what to run."""
    return load_model("dinov2-small", device="cpu")


@pytest.fixture(scope="session")
def cat() -> Photo:
    """A real photo, wider than high."""
    return load_image(SAMPLES / "cat.png")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder of this test's own; pytest would keep what is in it for three runs."""
    monkeypatch.setenv("FLASHLENS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path / "cache")


@pytest.fixture
def tiny_preset(monkeypatch: pytest.MonkeyPatch) -> TinyPreset:
    """A preset so small that it can be damaged and healed many times over."""
    weights = VisionTransformer(TINY).state_dict()
    preset = TinyPreset({name: torch.randn_like(tensor) for name, tensor in weights.items()})

    def convert(name: str, progress: Progress) -> Checkpoint:
        preset.conversions.append(name)
        return Checkpoint(TINY, preset.tensors)

    monkeypatch.setitem(PRESETS, "tiny", TINY)
    monkeypatch.setitem(packaged.SOURCES, "tiny", packaged.Source("none", "none", "a" * 64))
    monkeypatch.setattr(packaged, "convert", convert)
    return preset


@pytest.fixture
def kept(folder: Path, tiny_preset: TinyPreset) -> Path:
    """The tiny preset's good weights in the cache folder; making them is not counted."""
    path = packaged.prepare("tiny")
    tiny_preset.conversions.clear()
    return path


@pytest.fixture
def kept_default(folder: Path) -> Path:
    """The real default weights, prepared in the cache folder by the real conversion."""
    return packaged.prepare("dinov2-small")
