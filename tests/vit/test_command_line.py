"""`python -m vit`: the files that it writes, and the one line that it says when it cannot."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vit.__main__ import main
from vit.maps import MAPS
from vit.model import VisionTransformer
from vit.weights import load_model

CAT = str(Path(__file__).parents[2] / "app" / "samples" / "cat.png")
SMALL = ["--side", "112"]


@pytest.fixture(autouse=True)
def one_model(model: VisionTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's model, so that each call does not load it again."""
    monkeypatch.setattr(
        "vit.__main__.load_model",
        lambda name: model if name == "dinov2-small" else load_model(name),
    )


def test_the_map_is_one_array_of_the_grid(tmp_path, model, cat):
    out = tmp_path / "maps.npz"
    assert main([CAT, *SMALL, "--query", "1,2", "--layer", "5", "--out", str(out)]) == 0
    with np.load(out, allow_pickle=False) as file:
        assert set(file) == {"map", "log_sum_exp", "settings"}
        settings = json.loads(str(file["settings"]))
        trace = model.trace(cat, 112)
        expected = MAPS["row"](trace, 5, (1, 2)).numpy()
        assert file["map"].shape == (6, trace.grid.rows, trace.grid.columns)
        np.testing.assert_allclose(file["map"], expected, atol=1e-6)
        np.testing.assert_allclose(
            file["log_sum_exp"], trace.layers[5].log_sum_exp[0].numpy(), atol=1e-5
        )
    assert settings["layer"] == 5
    assert settings["query"] == [1, 2]
    assert settings["implementation"] == trace.implementation


def test_a_layer_may_be_counted_from_the_end_and_the_query_may_be_a_token(tmp_path):
    files = [tmp_path / name for name in ("a.npz", "b.npz")]
    assert main([CAT, *SMALL, "--out", str(files[0])]) == 0
    assert main([CAT, *SMALL, "--layer", "11", "--query", "class", "--out", str(files[1])]) == 0
    a, b = (np.load(file)["map"] for file in files)
    np.testing.assert_array_equal(a, b)


def test_columns_are_who_looks(tmp_path, model, cat):
    out = tmp_path / "maps.npz"
    assert main([CAT, *SMALL, "--map", "column", "--query", "3,3", "--out", str(out)]) == 0
    expected = MAPS["column"](model.trace(cat, 112), -1, (3, 3)).numpy()
    np.testing.assert_allclose(np.load(out)["map"], expected, atol=1e-6)


def test_the_picture_shows_all_heads(tmp_path):
    out = tmp_path / "map.png"
    assert main([CAT, *SMALL, "--square", "--png", str(out)]) == 0
    with Image.open(io.BytesIO(out.read_bytes())) as picture:
        width, height = picture.size
        assert picture.format == "PNG"
        assert width > 5 * height


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([CAT], "say where the map goes"),
        (["missing.jpg", "--out", "OUT"], "missing.jpg"),
        ([__file__, "--out", "OUT"], "picture"),
        ([CAT, "--query", "90,0", "--out", "OUT"], "outside the grid"),
        ([CAT, "--query", "register-1", "--out", "OUT"], "no token"),
        ([CAT, "--query", "1;2", "--out", "OUT"], "neither ROW,COLUMN"),
        ([CAT, "--layer", "12", "--out", "OUT"], "layers 0 to 11"),
        ([CAT, "--side", "0", "--out", "OUT"], "positive number of pixels"),
        ([CAT, "--side", "wide", "--out", "OUT"], "invalid int value"),
        ([CAT, "--map", "heat", "--out", "OUT"], "invalid choice"),
        ([CAT, "--model", "dinov9", "--out", "OUT"], "There is no model"),
        ([CAT, "--implementation", "fa9", *SMALL, "--out", "OUT"], "not known"),
        ([CAT, "--implementation", "fa2", "--side", "1400", "--out", "OUT"], "minutes"),
        ([CAT, "--out", "no-such-folder/maps.npz"], "no folder"),
        ([CAT, "--out", "."], "is a folder"),
    ],
)
def test_one_line_and_no_file(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([a if a != "OUT" else "maps.npz" for a in arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    out = tmp_path / "maps.npz"
    out.write_text("old")

    def full_disk(self, target):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    assert main([CAT, *SMALL, "--out", str(out)]) == 2
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["maps.npz"]


def test_help_teaches():
    done = subprocess.run(
        [sys.executable, "-m", "vit", "--help"], capture_output=True, text=True, check=True
    )
    for words in ("--query 10,12", "count from 0", "numpy.load", "never stores"):
        assert words in done.stdout
