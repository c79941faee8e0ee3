"""load_image: all eight EXIF orientations are one picture; of many frames the first is shown."""

from __future__ import annotations

import random
import struct
import warnings

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from tests.vit.picture_files import array, encode, noise
from vit.config import IMAGENET_MEAN, IMAGENET_STD
from vit.image import load_image
from vit.image.decode import UPRIGHT

RED, BLUE = (255, 0, 0), (0, 0, 255)
# What undoes each of the orientations: to store a picture with tag 6 it is turned as for tag 8.
INVERSE = {6: 8, 8: 6}


def oriented(kind: str, picture: Image.Image, orientation: int, **options) -> bytes:
    """A file whose stored pixels become `picture` when the tag is obeyed."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    method = UPRIGHT.get(INVERSE.get(orientation, orientation))
    stored = picture if method is None else picture.transpose(method)
    return encode(stored, kind, exif=exif, **options)


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize(
        ("kind", "options"),
        [
            ("PNG", {}),
            ("WEBP", {"lossless": True, "exact": True}),
            ("TIFF", {}),
            ("TIFF", {"compression": "tiff_deflate"}),
        ],
    )
    def test_all_eight_give_the_same_picture_and_the_same_input(self, kind, options, orientation):
        pixels = noise()
        photo = load_image(oriented(kind, Image.fromarray(pixels), orientation, **options))
        assert np.array_equal(np.asarray(photo.picture), pixels)
        plain = load_image(encode(pixels))
        grid = photo.grid(84)
        assert grid == plain.grid(84)
        ours, theirs = (p.pixels(grid, IMAGENET_MEAN, IMAGENET_STD) for p in (photo, plain))
        assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_jpeg_from_a_phone(self, orientation):
        blocks = noise(3, 5).repeat(16, axis=0).repeat(16, axis=1)  # flat blocks survive JPEG
        options = {"quality": 100, "subsampling": 0}
        picture = Image.fromarray(blocks)
        upright = array(encode(picture, "JPEG", **options))
        assert np.array_equal(array(oriented("JPEG", picture, orientation, **options)), upright)

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_avif(self, orientation):
        picture = Image.new("RGB", (64, 32), BLUE)
        picture.paste(RED, (0, 0, 16, 16))
        photo = load_image(oriented("AVIF", picture, orientation, quality=100))
        assert photo.picture.size == (64, 32)
        red = np.asarray(photo.picture)[..., 0] > 128
        assert red[2:14, 2:14].all()
        assert not red[18:, :].any()
        assert not red[:, 18:].any()

    @pytest.mark.parametrize(
        "exif",
        [
            b"",
            b"Exif\0\0",
            b"Exif\0\0Exif\0\0MM\0*\0\0\0\x08",
            b"Exif\0\0II*\0\xff\xff\xff\xff",
            b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\xff\xff\xff\xff\x06\0\0\0",
            b"Exif\0\0" + random.Random(0).randbytes(64),
        ],
    )
    def test_corrupt_exif_is_taken_as_upright(self, exif):
        segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
        plain = encode(noise(), "JPEG")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tagged = array(plain[:2] + segment + plain[2:])
        assert np.array_equal(tagged, array(plain))

    @pytest.mark.parametrize("orientation", [0, 9, 255])
    def test_an_orientation_that_does_not_exist_is_taken_as_upright(self, orientation):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        pixels = noise()
        assert np.array_equal(array(encode(pixels, exif=exif)), pixels)


class TestFrames:
    @pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "AVIF", "TIFF", "MPO"])
    def test_the_first_is_shown_and_said(self, kind):
        frames = [Image.new("RGB", (32, 32), colour) for colour in (RED, BLUE, BLUE)]
        if kind != "MPO":
            frames[2] = Image.new("RGB", (32, 32), (0, 255, 0))
        options = {"save_all": True, "append_images": frames[1:]}
        photo = load_image(encode(frames[0], kind, **options))
        assert np.abs(np.subtract(photo.picture.getpixel((9, 9)), RED)).max() <= 4
        assert photo.notes == (
            {
                "TIFF": "This is the first of several pages.",
                "MPO": "This is the first of 3 pictures in the file.",
            }.get(kind, "This is the first of 3 frames."),
        )

    @pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
    def test_a_single_frame_needs_no_remark(self, kind):
        assert load_image(encode(Image.new("RGB", (32, 32), RED), kind)).notes == ()
