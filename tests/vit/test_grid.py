"""PatchGrid: from pixels to patches and back, on grids that are not square and on crops."""

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from vit.grid import PatchGrid

counts = st.integers(1, 80)
edges = st.floats(0, 5000, allow_nan=False)
lengths = st.floats(14, 12_000, allow_nan=False)


@st.composite
def grids(draw) -> PatchGrid:
    left, top = draw(edges), draw(edges)
    box = (left, top, left + draw(lengths), top + draw(lengths))
    return PatchGrid(draw(counts), draw(counts), 14, box)


@given(grids(), st.data())
def test_centre_of_a_patch_maps_back_to_itself(grid, data):
    row = data.draw(st.integers(0, grid.rows - 1))
    column = data.draw(st.integers(0, grid.columns - 1))
    left, top, right, bottom = grid.box_of(row, column)
    assert grid.patch_at((left + right) / 2, (top + bottom) / 2) == (row, column)


@given(grids(), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_pixel_lies_in_the_patch_it_is_said_to_lie_in(grid, across, down):
    left, top, right, bottom = grid.box
    x, y = left + across * (right - left), top + down * (bottom - top)
    assume(x < right and y < bottom)
    patch = grid.patch_at(x, y)
    assume(patch is not None)  # rounding may put a point within 1e-9 of the far edge outside
    near = 1e-6
    left, top, right, bottom = grid.box_of(*patch)
    assert left - near <= x <= right + near
    assert top - near <= y <= bottom + near


@given(grids())
def test_patches_tile_the_box_without_gaps(grid):
    near = 1e-6
    for row in (0, grid.rows // 2, grid.rows - 1):
        for column in (0, grid.columns // 2, grid.columns - 1):
            _, _, right, bottom = grid.box_of(row, column)
            next_left, *_ = grid.box_of(row, column + 1)
            _, next_top, *_ = grid.box_of(row + 1, column)
            assert math.isclose(right, next_left, abs_tol=near)
            assert math.isclose(bottom, next_top, abs_tol=near)
    assert grid.box_of(0, 0)[:2] == grid.box[:2]
    far = grid.box_of(grid.rows - 1, grid.columns - 1)[2:]
    assert all(
        math.isclose(edge, end, abs_tol=near) for edge, end in zip(far, grid.box[2:], strict=True)
    )


def test_rows_go_down_and_columns_go_across():
    grid = PatchGrid(rows=20, columns=30, patch=14, box=(0, 0, 600, 400))
    assert grid.patch_at(x=25.5 * 20, y=3.5 * 20) == (3, 25)
    assert grid.box_of(3, 25) == (500, 60, 520, 80)
    assert grid.input_size == (280, 420)
    assert grid.patches == 600


def test_outside_the_crop_there_is_no_patch():
    grid = PatchGrid(rows=4, columns=4, patch=14, box=(100, 0, 500, 400))
    assert grid.patch_at(100, 0) == (0, 0)
    assert grid.patch_at(499.9, 399.9) == (3, 3)
    for x, y in ((99.9, 0), (500, 0), (300, -0.1), (300, 400), (0, 0)):
        assert grid.patch_at(x, y) is None
