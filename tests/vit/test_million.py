"""The picture of a million tokens, small: the same code makes it, reads it and judges its maps."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from kernels import attention_product
from kernels.bench.record import BenchError
from vit import MAPS, Photo
from vit.bench import million, million_read
from vit.bench.million import measure
from vit.bench.million_proof import Errors, errors_of
from vit.bench.million_read import Clock, pixels_of, read_all
from vit.image import load_image
from vit.image.mosaic import mosaic

SIDE = 224


@pytest.fixture(scope="module")
def photos() -> list[Photo]:
    return [load_image(million.SAMPLES / name) for name in million.PICTURES]


@pytest.fixture(scope="module")
def picture(photos: list[Photo]) -> Tensor:
    return mosaic(SIDE, photos)


def whole(picture: Tensor) -> Photo:
    """The picture as an uploaded one would be."""
    height, width, _ = picture.shape
    return Photo(Image.fromarray(picture.numpy()), (0.0, 0.0, float(width), float(height)), "")


def test_the_mosaic_is_the_same_each_time_and_shows_its_scene(photos, picture):
    assert picture.shape == (SIDE, SIDE, 3)
    assert picture.dtype == torch.uint8
    assert torch.equal(picture, mosaic(SIDE, photos))
    # From afar: each cell's mean is the scene's colour, where that is not too dark or bright to be shifted.
    cell = SIDE // 16
    means = picture.view(16, cell, 16, cell, 3).float().mean((1, 3))
    seen = photos[0].cropped("square")
    scene = torch.from_numpy(np.array(seen.picture.resize((16, 16), box=seen.crop))).int()
    shown = (scene > 100) & (scene < 150)
    assert shown.sum() > 50
    assert (means - scene)[shown].abs().max() < 12
    assert (
        picture.view(16, cell, 16, cell, 3).float().std((1, 3)).mean() > 10
    )  # from near: pictures


@pytest.mark.parametrize("side", [14, 100, 350])
def test_a_mosaic_of_any_side(photos, side):
    assert mosaic(side, photos).shape == (side, side, 3)


def test_pixels_in_strips_are_those_of_a_photo(model, picture, monkeypatch):
    monkeypatch.setattr(million_read, "STRIP_ROWS", 60)  # the last strip is shorter
    expected, _ = model.prepare(whole(picture), SIDE)
    assert torch.equal(pixels_of(picture, model), expected)


def test_the_maps_are_those_of_a_trace(model, picture):
    query = (3, 7)
    maps = read_all(model, picture, query, Clock(model.device), keep=True)
    trace = model.trace(whole(picture), SIDE)
    assert maps.rows.shape == maps.columns.shape == maps.received.shape == (12, 6, 257)
    for number, layer in enumerate(trace.layers):
        received = attention_product(None, layer.q, layer.k, layer.log_sum_exp)[0]
        assert torch.equal(maps.received[number], received)
        for name, found in (("row", maps.rows), ("column", maps.columns)):
            expected = MAPS[name](trace, number, query)
            assert torch.equal(found[number, :, 1:].view_as(expected), expected)
    assert maps.trace is not None
    assert all(torch.equal(a.q, b.q) for a, b in zip(maps.trace.layers, trace.layers, strict=True))


def test_one_layer_is_in_memory_at_a_time(model, picture, monkeypatch):
    import weakref

    seen = []
    read = million_read.read_layer

    def spy(single, query, clock):
        assert all(layer() is None for layer in seen)
        seen.append(weakref.ref(single.layers[0]))
        return read(single, query, clock)

    monkeypatch.setattr(million_read, "read_layer", spy)
    maps = read_all(model, picture, "class", Clock(model.device))
    assert len(seen) == 12
    assert maps.trace is None


def test_wrong_maps_are_found_and_not_recorded(model, picture, monkeypatch, tmp_path, capsys):
    maps = read_all(model, picture, "class", Clock(model.device), keep=True)
    assert maps.trace is not None
    single = model.trace_of(maps.trace.layers[5:6], maps.trace.grid, "eager")
    right = [maps.rows[5], maps.columns[5], maps.received[5]]
    assert errors_of(single, "class", *right).largest < million.LARGEST_ERROR
    for number, name in enumerate(("rows", "columns", "received")):
        for factor in (1.01, torch.nan):
            wrong = [part.clone() for part in right]
            wrong[number][3] *= factor
            errors = errors_of(single, "class", *wrong)
            assert not getattr(errors, name) <= 5e-3
            assert not errors.largest <= million.LARGEST_ERROR
    monkeypatch.setattr(million_read, "errors_of", lambda *_: Errors(columns=torch.nan))
    monkeypatch.setattr(million, "load_model", lambda name: model)
    out = tmp_path / "out.csv"
    assert million.main(["--side", str(SIDE), "--out", str(out)]) == 2
    assert "maps are wrong" in capsys.readouterr().err
    assert not out.exists()


def test_the_record(model, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(million, "load_model", lambda name: model)
    out = tmp_path / "out.csv"
    assert million.main(["--side", str(SIDE), "--out", str(out), "--keep", "--commit", "abc"]) == 0
    with out.open(newline="") as file:
        rows = {row["stage"]: row for row in csv.DictReader(file)}
    assert {*million.READING, "picture", "check", "another query", "total"} == set(rows)
    assert all(row["tokens"] == "257" and row["commit"] == "abc" for row in rows.values())
    parts = sum(float(rows[stage]["seconds"]) for stage in million.READING)
    assert float(rows["total"]["seconds"]) == pytest.approx(parts, abs=0.01)
    for stage in ("rows", "columns", "received"):
        assert 0 < float(rows[stage]["error"]) < 1e-4
    assert float(rows["received"]["sum_off"]) < 1e-5
    assert "received" in capsys.readouterr().out


def test_refusals(model):
    with pytest.raises(BenchError, match="multiple of a patch"):
        measure(model, 500)
    with pytest.raises(BenchError, match="needs a GPU"):
        measure(model, 14 * 200)


@pytest.mark.gpu
def test_on_a_gpu():
    """Half precision, and the mosaic worked out on the GPU has the same bits."""
    from vit import load_model

    photos = [load_image(million.SAMPLES / name) for name in million.PICTURES]
    assert torch.equal(mosaic(1036, photos, "cuda"), mosaic(1036, photos))
    _, rows = measure(load_model("dinov2-small", "cuda"), 2072 + 14)
    total = rows[-1]
    assert total["stage"] == "total"
    assert 0 < float(str(total["peak_gb"])) < 5
