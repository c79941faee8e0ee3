"""Where weights are kept, what is done where nothing can be, and `python -m vit.weights`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.vit.helpers import TinyPreset, files_in, refusal
from vit import load_model
from vit.weights import cache, packaged
from vit.weights.__main__ import main


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that nobody can make, not even root: its parent is a file."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLASHLENS_CACHE", str(tmp_path / "file" / "cache"))
    return tmp_path / "file" / "cache"


def test_loading_goes_on_where_nothing_can_be_kept(
    unwritable: Path, tiny_preset: TinyPreset
) -> None:
    with pytest.warns(UserWarning, match="set FLASHLENS_CACHE to a folder that can be written"):
        assert tiny_preset.is_loaded()


def test_preparing_fails_where_nothing_can_be_kept(
    unwritable: Path, tiny_preset: TinyPreset, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refusal(lambda: packaged.prepare("tiny"))
    assert "set FLASHLENS_CACHE to a folder that can be written" in sentence
    assert main(["tiny"]) == 1
    assert capsys.readouterr().err == f"{sentence}\n"


def test_a_full_disk_leaves_no_half_file(
    folder: Path, tiny_preset: TinyPreset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "save_file", full)
    with pytest.warns(UserWarning, match="no space left on device"):
        assert tiny_preset.is_loaded()
    assert files_in(folder) == []


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "/home/ada/.cache/flashlens"),
        ("linux", {"XDG_CACHE_HOME": "/tidy"}, "/tidy/flashlens"),
        ("linux", {"XDG_CACHE_HOME": "not/absolute"}, "/home/ada/.cache/flashlens"),
        ("darwin", {"XDG_CACHE_HOME": "/tidy"}, "/home/ada/Library/Caches/flashlens"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/flashlens"),
        ("win32", {}, "/home/ada/AppData/Local/flashlens"),
        ("linux", {"FLASHLENS_CACHE": "/chosen", "XDG_CACHE_HOME": "/tidy"}, "/chosen"),
        ("linux", {"FLASHLENS_CACHE": "~/chosen"}, "/home/ada/chosen"),
    ],
)
def test_cache_folder(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLASHLENS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (variables | {"HOME": "/home/ada"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache.cache_folder() == Path(expected)


def test_no_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FLASHLENS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert "set FLASHLENS_CACHE" in refusal(cache.cache_folder)


def test_command_line(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[-1] == f"100%  The weights of tiny are ready in {kept}."
    assert output.err == ""
    assert main(["dinov2-enormous"]) == 1
    output = capsys.readouterr()
    assert output.err == "There is no preset 'dinov2-enormous'; choose dinov2-small, tiny.\n"


def test_progress_runs_from_nothing_to_all(folder: Path, tiny_preset: TinyPreset) -> None:
    steps: list[tuple[float, str]] = []
    load_model("tiny", device="cpu", progress=lambda done, sentence: steps.append((done, sentence)))
    done = [step for step, _ in steps]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, 1.0)
    assert all(sentence.endswith(".") for _, sentence in steps)
