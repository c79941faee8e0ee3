"""The downloads: every pixel and number in its place."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from app.figures import scale, sheet
from app.theme import MARK
from vit.colours import probability_table
from vit.files import npz
from vit.grid import PatchGrid


def one_hot(grid: PatchGrid, row: int, column: int, heads: int = 6) -> np.ndarray:
    maps = np.zeros((heads, grid.rows, grid.columns), np.float32)
    maps[:, row, column] = 0.25
    return maps


def sheet_of(grid: PatchGrid, maps: np.ndarray, **changes) -> sheet.Sheet:
    size = round(grid.box[2]), round(grid.box[3])
    given = {
        "picture": Image.new("RGB", size, (90, 90, 90)),
        "size": size,
        "grid": grid,
        "query": (2, 7),
        "maps": maps,
        "head": 1,
        "scale": "shared",
        "title": "title",
        "caption": "caption",
        "head_names": tuple(f"head {i}" for i in range(len(maps))),
        "bar_label": "probability",
    }
    return sheet.Sheet(**(given | changes))


@pytest.mark.parametrize(("rows", "columns"), [(10, 30), (20, 30), (30, 10)])
def test_a_one_hot_map_lights_its_patch_and_no_other(rows: int, columns: int) -> None:
    grid = PatchGrid(rows, columns, 14, (0, 0, 20 * columns, 20 * rows))
    made = sheet_of(grid, one_hot(grid, 3, 8))
    image = np.asarray(sheet.draw(made))
    _, _, boxes = sheet.layout(made)
    dark, bright = probability_table()[[0, 255]]
    for left, top, right, bottom in boxes:
        shown = image[top:bottom, left:right]
        lit = np.argwhere((shown == bright).all(-1))
        centre = lit.mean(0) / shown.shape[:2] * (rows, columns)
        assert centre == pytest.approx((3.5, 8.5), abs=0.1)
        height, width = lit.max(0) - lit.min(0) + 1
        assert height == pytest.approx(shown.shape[0] / rows, abs=1)
        assert width == pytest.approx(shown.shape[1] / columns, abs=1)
        assert (shown[(shown != bright).any(-1)] == dark).all()


def test_the_query_is_marked_on_the_picture() -> None:
    grid = PatchGrid(10, 30, 14, (0, 0, 600, 200))
    made = sheet_of(grid, one_hot(grid, 0, 0))
    image = np.asarray(sheet.draw(made))
    _, (left, top, right, bottom), _ = sheet.layout(made)
    marked = np.argwhere((image == MARK).all(-1))
    across, down = (right - left) / 600, (bottom - top) / 200
    box = grid.box_of(2, 7)
    assert marked.min(0) == pytest.approx((top + box[1] * down, left + box[0] * across), abs=1)
    last = top + box[3] * down - 1, left + box[2] * across - 1
    assert marked.max(0) == pytest.approx(last, abs=1)


def test_a_token_marks_no_patch() -> None:
    grid = PatchGrid(4, 4, 14, (0, 0, 100, 100))
    image = np.asarray(sheet.draw(sheet_of(grid, one_hot(grid, 0, 0), query="class")))
    assert not (image == MARK).all(-1).any()


def test_scales() -> None:
    maps = np.zeros((2, 1, 2), np.float32)
    maps[0, 0], maps[1, 0] = (0.5, 0.05), (0.1, 0)
    assert scale.tops(maps, "shared") == pytest.approx([0.5, 0.5])
    assert scale.tops(maps, "each") == pytest.approx([0.5, 0.1])
    assert scale.on_scale(maps[0, 0], 0.5, "shared") == pytest.approx([1, 0.1])
    assert scale.on_scale(maps[0, 0], 0.5, "log") == pytest.approx([1, 0.75])
    assert scale.on_scale(maps[1, 0], 0.5, "log")[1] == 0
    assert (scale.on_scale(np.zeros(3), 0, "shared") == 0).all()
    assert scale.ticks(0.5, "log")[0] == pytest.approx((0, 0.5e-4))


def test_a_png_carries_no_metadata() -> None:
    grid = PatchGrid(4, 4, 14, (0, 0, 100, 100))
    file = sheet.png(sheet.draw(sheet_of(grid, one_hot(grid, 1, 1))))
    with Image.open(io.BytesIO(file)) as image:
        image.load()
        assert image.format == "PNG"
        assert not image.info


def test_numbers_come_back_without_pickle() -> None:
    rng = np.random.default_rng(0)
    maps, lse = rng.random((6, 3, 5), np.float32), rng.random((6, 16), np.float32)
    file = npz(maps, lse, {"layer": 11, "query": "1,2"})
    with np.load(io.BytesIO(file), allow_pickle=False) as found:
        assert sorted(found) == ["log_sum_exp", "map", "settings"]
        np.testing.assert_array_equal(found["map"], maps)
        np.testing.assert_array_equal(found["log_sum_exp"], lse)
        assert json.loads(str(found["settings"])) == {"layer": 11, "query": "1,2"}
