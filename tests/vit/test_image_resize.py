"""Resizing on a GPU gives Pillow's bytes; here the same sums run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from tests.vit.conftest import SAMPLES
from vit.grid import Box
from vit.image import load_image, resize
from vit.image.resize import along, resized

BICUBIC = Image.Resampling.BICUBIC


def noise(seed: int, height: int, width: int) -> np.ndarray:
    """Black and white at random: the hardest, for it overshoots both ends of a byte."""
    return 255 * np.random.default_rng(seed).integers(0, 2, (height, width, 3), dtype=np.uint8)


def by_sums(picture: Image.Image, height: int, width: int, box: Box) -> torch.Tensor:
    """Both directions by `along`, over all rows."""
    left, top, right, bottom = box
    across = along(torch.from_numpy(np.array(picture)), 1, width, left, right)
    return along(across, 0, height, top, bottom)


@pytest.mark.parametrize("seed", range(60))
def test_sums_are_pillows_bytes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (height, width), (rows, columns) = rng.integers(1, 90, 2), rng.integers(1, 120, 2)
    picture = Image.fromarray(noise(seed, height, width))
    box = (0.0, 0.0, float(width), float(height))
    if seed % 2:
        (left, top), (a, b) = rng.uniform(0, 0.6, 2) * (width, height), rng.uniform(0.1, 1, 2)
        box = (left, top, left + a * (width - left), top + b * (height - top))
    found = along(torch.from_numpy(np.array(picture)), 1, int(columns), box[0], box[2])
    expected = picture.resize((int(columns), int(height)), BICUBIC, (box[0], 0, box[2], height))
    assert np.array_equal(found.numpy(), np.array(expected))
    found = along(torch.from_numpy(np.array(picture)), 0, int(rows), box[1], box[3])
    expected = picture.resize((int(width), int(rows)), BICUBIC, (0, box[1], width, box[3]))
    assert np.array_equal(found.numpy(), np.array(expected))


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [
        (112, 168, (0, 0, 300, 200)),
        (56, 28, (100.5, 20.25, 180.75, 171.5)),
        (420, 420, (3, 150, 53, 200)),
        (14, 14, (299, 199, 300, 200)),
    ],
)
def test_both_directions(height: int, width: int, box: Box) -> None:
    """Rows that nobody looks at are left out, which changes nothing but the rounding of the box."""
    picture = Image.fromarray(noise(1, 200, 300))
    found = resized(picture, height, width, box, "cpu")
    assert found.shape == (height, width, 3)
    assert found.dtype == torch.uint8
    difference = (found.int() - by_sums(picture, height, width, box).int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 1e-3


def test_like_pillow_left_to_itself() -> None:
    """A picture that is not tall is resized as Pillow itself does."""
    picture = load_image(SAMPLES / "cat.png").picture
    found = resized(picture, 280, 420, (0, 0, *picture.size), "cpu")
    assert np.array_equal(found.numpy(), np.array(picture.resize((420, 280), BICUBIC)))


@pytest.mark.gpu
@pytest.mark.parametrize("side", [56, 224, 518, 1036])
@pytest.mark.parametrize("crop", [None, "square", (20.5, 30.25, 300.0, 290.5)])
def test_gpu_gives_the_cpus_bytes(side: int, crop, monkeypatch) -> None:
    for name in ("cat.png", "astronaut.jpg"):
        photo = load_image(SAMPLES / name, crop)
        grid = photo.grid(side)
        on_gpu = resized(photo.picture, *grid.input_size, grid.box, "cuda")
        on_cpu = resized(photo.picture, *grid.input_size, grid.box, "cpu")
        assert on_gpu.is_cuda
        assert torch.equal(on_gpu.cpu(), on_cpu)
        for limit in ("MOST_READ", "MOST_MADE"):
            with monkeypatch.context() as patch:
                patch.setattr(resize, limit, 1)
                assert not resized(photo.picture, *grid.input_size, grid.box, "cuda").is_cuda
