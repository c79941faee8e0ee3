"""Photo: from any source, the same picture, cropped only on request, for the model and the screen."""

from __future__ import annotations

import hashlib
import os
import threading
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from tests.vit.picture_files import array, blank, encode, noise, refusal
from vit.config import IMAGENET_MEAN, IMAGENET_STD
from vit.image import ImageError, load_image


class TestSources:
    def test_path_text_bytes_and_stream_give_the_same_photo(self, tmp_path):
        data = encode(noise())
        path = tmp_path / "Ein Bild, größer.png"
        path.write_bytes(data)
        photos = [load_image(source) for source in (path, str(path), data, BytesIO(data))]
        assert len({*photos}) == 1
        assert photos[0].digest == hashlib.sha256(data).hexdigest()

    def test_a_stream_that_was_read_before_is_read_again(self):
        stream = BytesIO(encode(noise()))
        assert load_image(stream) == load_image(stream)

    def test_the_name_does_not_decide_the_format(self, tmp_path):
        path = tmp_path / "photo.jpg"
        path.write_bytes(encode(noise(), "PNG"))
        assert np.array_equal(array(path), noise())

    def test_paths_that_lead_to_no_file(self, tmp_path):
        assert "no file" in refusal(tmp_path / "missing.jpg")
        assert "no file" in refusal("missing\n\0.jpg")
        assert "folder" in refusal(tmp_path)
        assert "too long" in refusal("x" * 5000)
        fifo = tmp_path / "pipe"
        os.mkfifo(fifo)
        assert "not an ordinary file" in refusal(fifo)

    def test_a_file_that_may_not_be_read(self, tmp_path, monkeypatch):
        path = tmp_path / "secret.png"
        path.write_bytes(encode(noise()))

        def forbid(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", forbid)
        assert "permission denied" in refusal(path)

    def test_many_threads_at_once(self):
        files = [encode(noise(seed=seed), "PNG" if seed % 2 else "TIFF") for seed in range(16)]
        found: dict[int, np.ndarray] = {}

        def work(seed: int) -> None:
            found[seed] = array(files[seed])

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.array_equal(found[seed], noise(seed=seed)) for seed in range(16))


class TestCrop:
    def test_nothing_is_cropped_unless_asked(self):
        assert load_image(encode(noise(30, 50))).crop == (0, 0, 50, 30)

    @pytest.mark.parametrize(
        ("height", "width", "box"),
        [(30, 50, (10, 0, 40, 30)), (50, 30, (0, 10, 30, 40)), (31, 50, (9.5, 0, 40.5, 31))],
    )
    def test_square_is_the_largest_in_the_middle(self, height, width, box):
        photo = load_image(encode(noise(height, width)), crop="square")
        assert photo.crop == box
        grid = photo.grid(70)
        assert (grid.rows, grid.columns, grid.box) == (5, 5, box)

    def test_a_box_and_back_to_the_whole(self):
        photo = load_image(encode(noise(30, 50)), crop=(5, 6, 25, 26))
        assert photo.crop == (5, 6, 25, 26)
        assert photo.cropped(None).crop == (0, 0, 50, 30)
        assert photo.picture.size == (50, 30)  # the screen still has the whole picture

    @pytest.mark.parametrize(
        "box",
        [
            (-1, 0, 20, 20),
            (0, 0, 51, 30),
            (20, 0, 20, 30),
            (20, 0, 0, 30),
            (0, 0, float("nan"), 30),
            (0, 0, 13, 30),
            (0, 0, 20),
            "circle",
            ("a", "b", "c", "d"),
        ],
    )
    def test_boxes_that_make_no_sense(self, box):
        assert "crop" in refusal(encode(noise(30, 50)), crop=box)

    def test_what_lies_outside_the_crop_never_reaches_the_model(self):
        source = Image.new("RGB", (200, 100))
        source.paste((255, 255, 255), (0, 0, 40, 40))
        photo = load_image(encode(source), crop=(60, 0, 160, 100))
        pixels = photo.pixels(photo.grid(70), (0, 0, 0), (1, 1, 1))
        assert pixels.abs().max() == 0


class TestPixels:
    @pytest.mark.parametrize(
        ("height", "width", "side", "rows", "columns"),
        [
            (100, 100, 518, 37, 37),
            (300, 451, 518, 25, 37),
            (451, 300, 518, 37, 25),
            (400, 600, 420, 20, 30),
            (100, 300, 420, 10, 30),
            (20, 400, 56, 1, 4),
            (20, 20, 1, 1, 1),
            (20, 20, 35, 3, 3),
        ],
    )
    def test_grid_keeps_the_proportions(self, height, width, side, rows, columns):
        photo = load_image(encode(noise(height, width)))
        grid = photo.grid(side)
        assert (grid.rows, grid.columns) == (rows, columns)
        assert photo.pixels(grid, IMAGENET_MEAN, IMAGENET_STD).shape == (
            1,
            3,
            rows * 14,
            columns * 14,
        )

    @settings(max_examples=60, deadline=None)
    @given(st.integers(14, 280), st.integers(14, 280), st.integers(280, 1036))
    def test_the_stretch_is_at_most_half_a_patch(self, height, width, side):
        grid = load_image(blank(width, height)).grid(side)
        longest = max(grid.rows, grid.columns)
        assert abs(longest - side / 14) <= 0.5
        exact = longest * min(height, width) / max(height, width)
        assert min(grid.rows, grid.columns) >= 1
        assert abs(min(grid.rows, grid.columns) - max(exact, 0.5)) <= 0.5 + 1e-9

    def test_a_size_that_is_none(self):
        with pytest.raises(ImageError, match="positive"):
            load_image(encode(noise())).grid(0)

    def test_values_are_normalised_per_channel(self):
        photo = load_image(encode(np.full((28, 28, 3), (255, 0, 51), np.uint8)))
        pixels = photo.pixels(photo.grid(28), IMAGENET_MEAN, IMAGENET_STD)
        expected = (np.array([1, 0, 0.2]) - IMAGENET_MEAN) / IMAGENET_STD
        assert pixels.dtype == torch.float32
        assert pixels.is_contiguous()
        for channel in range(3):
            assert torch.allclose(pixels[0, channel], torch.tensor(expected[channel]).float())

    def test_at_its_own_size_the_picture_is_not_resampled(self):
        photo = load_image(encode(noise(28, 42)))
        pixels = photo.pixels(photo.grid(42), (0, 0, 0), (1, 1, 1))[0]
        assert np.array_equal((pixels * 255).round().byte().permute(1, 2, 0).numpy(), noise(28, 42))

    @pytest.mark.parametrize("crop", [None, "square", (30.0, 10.0, 290.0, 150.0)])
    @pytest.mark.parametrize(("height", "width"), [(160, 300), (300, 300)])
    def test_a_mark_in_a_patch_reaches_the_model_in_that_patch(self, crop, height, width):
        source = Image.new("RGB", (width, height))
        grid = load_image(encode(source), crop=crop).grid(140)
        row, column = grid.rows // 3, grid.columns - 2
        left, top, right, bottom = grid.box_of(row, column)
        source.paste((255, 255, 255), tuple(map(round, (left + 2, top + 2, right - 2, bottom - 2))))
        photo = load_image(encode(source), crop=crop)
        pixels = photo.pixels(grid, (0, 0, 0), (1, 1, 1))
        patches = torch.nn.functional.avg_pool2d(pixels.mean(1, keepdim=True), 14)[0, 0]
        assert patches.shape == (grid.rows, grid.columns)
        assert divmod(int(patches.argmax()), grid.columns) == (row, column)
        patches[row, column] = 0
        assert patches.max() < 0.1


class TestScreen:
    def test_jpeg_keeps_the_whole_picture_in_its_proportions(self):
        photo = load_image(encode(noise(300, 600)), crop="square")
        assert Image.open(BytesIO(photo.jpeg(longest=200))).size == (200, 100)
        assert Image.open(BytesIO(photo.jpeg())).size == (600, 300)  # never enlarged

    def test_nothing_personal_travels_on(self):
        exif = Image.Exif()
        exif[ExifTags.Base.Make] = "SecretCamera"
        exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitudeRef] = "N"
        options = {"exif": exif, "comment": b"SecretWords", "icc_profile": b"SecretProfile"}
        file = encode(noise(), "JPEG", **options)
        assert file.count(b"Secret") == 3
        photo = load_image(file)
        assert photo.picture.info == {}
        for shown in (photo.jpeg(), encode(photo.picture), encode(photo.picture, "JPEG")):
            assert b"Secret" not in shown
            assert b"Exif" not in shown
