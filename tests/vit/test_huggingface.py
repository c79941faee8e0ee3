"""Checkpoints in Hugging Face's layout, from a folder or the hub; what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors
from safetensors.torch import load_file, save_file

from tests.vit.helpers import boastful, cut_short, in_a_process, refusal
from tests.vit.oracle import change_settings, save_tiny
from vit import load_model
from vit.config import IMAGENET_MEAN
from vit.weights import hub


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    save_tiny(tmp_path / "tiny", registers=2)
    return tmp_path / "tiny"


def test_config_is_read_and_not_assumed(tiny: Path) -> None:
    settings = {"do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.1]}
    (tiny / "preprocessor_config.json").write_text(json.dumps(settings))
    config = load_model(tiny, device="cpu").config
    assert (config.dim, config.layers, config.heads, config.mlp_dim) == (48, 3, 3, 144)
    assert (config.patch, config.position_grid, config.registers) == (14, 4, 2)
    assert config.norm_eps == 1e-5
    assert (config.mean, config.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.1))


def test_pixels_that_are_not_normalised(tiny: Path) -> None:
    (tiny / "preprocessor_config.json").write_text('{"do_normalize": false}')
    config = load_model(tiny, device="cpu").config
    assert (config.mean, config.std) == ((0, 0, 0), (1, 1, 1))


def test_usual_normalisation_without_a_preprocessor(tiny: Path) -> None:
    assert load_model(tiny, device="cpu").config.mean == IMAGENET_MEAN


def test_folder_file_and_shards_are_the_same(tmp_path: Path) -> None:
    judge = save_tiny(tmp_path / "whole")
    judge.save_pretrained(tmp_path / "shards", max_shard_size="100KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    whole = load_model(tmp_path / "whole", device="cpu").state_dict()
    for path in (str(tmp_path / "whole" / "model.safetensors"), tmp_path / "shards"):
        other = load_model(path, device="cpu").state_dict()
        assert all(torch.equal(whole[name], other[name]) for name in whole)


def test_a_half_precision_file_is_widened(tiny: Path) -> None:
    halves = {name: t.bfloat16() for name, t in load_file(tiny / "model.safetensors").items()}
    save_file(halves, tiny / "model.safetensors")
    assert load_model(tiny, device="cpu").dtype == torch.float32


def without(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return damage


def with_tensor(name: str, tensor: torch.Tensor) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors") | {name: tensor}
        save_file(tensors, folder / "model.safetensors")

    return damage


def settings(**changes: object) -> Callable[[Path], None]:
    return lambda folder: change_settings(folder, **changes)


def written(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def pickled_only(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"layernorm.weight": torch.ones(48)}, folder / "pytorch_model.bin")


def shard_elsewhere(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    weight_map = {"layernorm.weight": "../elsewhere.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


PREPROCESSOR = "preprocessor_config.json"
REFUSALS = {
    "no config": (removed("config.json"), "There is no config.json in"),
    "no weights": (removed("model.safetensors"), "There is no file"),
    "pickled weights only": (pickled_only, "There is no file"),
    "config is no JSON": (written("config.json", "{"), "cannot be read as JSON"),
    "config is a list": (written("config.json", "[]"), "should hold a JSON object"),
    "another model": (settings(model_type="vit"), "supported are dinov2 and dinov2_with_registers"),
    "no type": (settings(model_type=None), "a model of type None"),
    "giant": (settings(use_swiglu_ffn=True), "SwiGLU"),
    "another activation": (settings(hidden_act="relu"), "only 'gelu' is supported"),
    "no biases": (settings(qkv_bias=False), "qkv_bias = False"),
    "four channels": (settings(num_channels=4), "num_channels = 4"),
    "a number missing": (settings(hidden_size=None), "give hidden_size as a whole number"),
    "a number in words": (settings(num_hidden_layers="3"), "give num_hidden_layers as a whole"),
    "a negative number": (settings(patch_size=-14), "give patch_size as a whole number"),
    "true is no number": (settings(num_attention_heads=True), "give num_attention_heads as a"),
    "no epsilon": (settings(layer_norm_eps=None), "give layer_norm_eps as a number above zero"),
    "not a square": (settings(image_size=[56, 70]), "give image_size as a whole number"),
    "heads do not divide": (settings(num_attention_heads=5), "do not fit together"),
    "endless layers": (settings(num_hidden_layers=10**6), "do not fit together"),
    "a layer too many": (settings(num_hidden_layers=4), "encoder.layer.3"),
    "a layer too few": (settings(num_hidden_layers=2), "is not a part of the model"),
    "other registers": (settings(num_register_tokens=3), "should have the shape [1, 3, 48]"),
    "registers left over": (
        settings(model_type="dinov2"),
        "embeddings.register_tokens is not a part",
    ),
    "another width": (settings(hidden_size=24), "should have the shape"),
    "huge width": (settings(hidden_size=3 * 2**18), "should have the shape"),
    "a tensor missing": (without("layernorm.bias"), "layernorm.bias is missing"),
    "a tensor left over": (
        with_tensor("classifier.weight", torch.ones(2, 2)),
        "classifier.weight is not a part of the model",
    ),
    "quantised": (
        with_tensor("layernorm.bias", torch.ones(48, dtype=torch.int8)),
        "is of type I8; choose a checkpoint whose weights are floating point",
    ),
    "cut short": (
        lambda folder: cut_short(folder / "model.safetensors"),
        "not a whole safetensors",
    ),
    "boastful header": (lambda folder: boastful(folder / "model.safetensors"), "not a whole"),
    "shard elsewhere": (shard_elsewhere, "does not name its shards"),
    "two means": (
        written(PREPROCESSOR, '{"image_mean": [0.5, 0.5]}'),
        "image_mean as three numbers",
    ),
    "a deviation of zero": (written(PREPROCESSOR, '{"image_std": [1, 1, 0]}'), "above zero"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_checkpoint_that_does_not_fit_is_refused(case: str, tiny: Path) -> None:
    damage, expected = REFUSALS[case]
    damage(tiny)
    assert expected in refusal(lambda: load_model(tiny, device="cpu"))


@pytest.mark.parametrize("name", ["nothing", "../no/where", "/no/where", "", "x" * 5000, "a\0b"])
def test_a_name_that_is_nothing(name: str) -> None:
    sentence = refusal(lambda: load_model(name, device="cpu"))
    assert "There is no model" in sentence or "There is no config.json" in sentence


def test_a_file_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.pth").write_bytes(b"pickle")
    assert "is no checkpoint that can be read" in refusal(
        lambda: load_model(tmp_path / "model.pth")
    )


@pytest.mark.parametrize("device", ["potato", "cuda:99"])
def test_a_device_that_is_not_here(device: str) -> None:
    assert "choose cpu" in refusal(lambda: load_model(device=device))


# --- the hub ----------------------------------------------------------------------------------------


def test_a_hub_id_fetches_numbers_and_tensors_only(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, list[str]]] = []

    def snapshot(repository: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repository, revision, allow_patterns))
        return str(tiny)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    model = load_model("ada/tiny@v1.0", device="cpu")
    assert (model.name, model.config.registers) == ("ada/tiny@v1.0", 2)
    [(repository, revision, patterns)] = asked
    assert (repository, revision) == ("ada/tiny", "v1.0")
    assert all(pattern.endswith((".json", ".safetensors")) for pattern in patterns)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.GatedRepoError, "asks for leave"),
        (errors.RepositoryNotFoundError, "is not on the Hugging Face hub"),
        (errors.RevisionNotFoundError, "has no revision 'main'"),
        (errors.HFValidationError, "is not a hub id"),
        (errors.LocalEntryNotFoundError, "cannot be reached"),
        (errors.OfflineModeIsEnabled, "cannot be reached"),
        (ConnectionResetError, "cannot be reached"),
        (PermissionError, "could not be fetched"),
    ],
)
def test_hub_errors(error: type[Exception], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> str:
        raise error.__new__(error)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert expected in refusal(lambda: hub.fetch("ada/model@main"))


def test_the_hub_that_cannot_be_reached_and_what_it_left_behind(tiny: Path, tmp_path: Path) -> None:
    """The hub's own cache answers offline; anything else is refused in a sentence."""
    repository = tmp_path / "hub" / "models--ada--tiny"
    commit = "0123456789012345678901234567890123456789"
    shutil.copytree(tiny, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    code = """
from vit import load_model
from vit.weights import WeightsError
print(load_model("ada/tiny", device="cpu").config.registers)
try:
    load_model("ada/other", device="cpu")
except WeightsError as error:
    print(error)
"""
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": str(tmp_path / "hub")}
    assert in_a_process(code, **nowhere) == [
        "2",
        "ada/other is not on this machine and the hub cannot be reached; check the network.",
    ]
