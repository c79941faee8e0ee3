"""load_image: every mode that a file may hold comes out as the RGB that one expects to see."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.vit.picture_files import array, chunk, encode, ink_profile, noise, png, refusal, tiff
from vit.image import load_image

RED = (255, 0, 0)
ON_WHITE = "Transparent parts are shown on white."


class TestColour:
    @pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF"])
    def test_plain_rgb_comes_through_unchanged_and_without_remarks(self, kind):
        options = {"lossless": True} if kind == "WEBP" else {}
        photo = load_image(encode(noise(), kind, **options))
        assert np.array_equal(np.asarray(photo.picture), noise())
        assert photo.notes == ()

    @pytest.mark.parametrize("mode", ["L", "1", "P"])
    def test_grey_one_bit_and_palette(self, mode):
        source = Image.fromarray(noise()).convert(mode)
        photo = load_image(encode(source))
        assert photo.notes == ()
        assert np.array_equal(np.asarray(photo.picture), np.asarray(source.convert("RGB")))

    @pytest.mark.parametrize("mode", ["I;16", "I;16B"])
    def test_16_bit_grey_keeps_its_256_greys(self, mode):
        values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        raw = values.astype(">u2" if mode == "I;16B" else "<u2").tobytes()
        source = Image.frombytes(mode, (256, 256), raw)
        kinds = ["TIFF"] if mode == "I;16B" else ["TIFF", "PNG"]
        for kind in kinds:
            picture = array(encode(source, kind))
            assert np.array_equal(picture, (values >> 8)[..., None].repeat(3, axis=2))

    def test_12_bit_grey_reaches_white(self):
        values = np.arange(0, 4096, 4).reshape(32, 32)
        assert np.array_equal(array(tiff(values, bits=12))[..., 0], values >> 4)

    def test_16_bit_grey_that_counts_from_white_to_black(self):
        values = np.arange(0, 65536, 64).reshape(32, 32)
        assert np.array_equal(array(tiff(values, 16, photometric=0))[..., 0], 255 - (values >> 8))

    def test_48_bit_colour_is_scaled(self):
        row = struct.pack(">3H", 40000, 256, 65535) * 20
        assert tuple(array(png(20, 20, 16, 2, [row] * 20))[0, 0]) == (156, 1, 255)

    @pytest.mark.parametrize(
        ("low", "high", "black", "white"),
        [(0, 1, "0", "1"), (0, 255, "0", "255"), (-2, 2, "-2", "2"), (100, 1000, "100", "1000")],
    )
    @pytest.mark.parametrize("kind", [np.float32, np.int32])
    def test_open_ranges_are_scaled_and_said(self, kind, low, high, black, white):
        values = np.linspace(low, high, 900).astype(kind).reshape(30, 30)
        photo = load_image(encode(values, "TIFF"))
        grey = np.asarray(photo.picture)[..., 0]
        expected = (values.astype(float) - low) / (high - low) * 255
        assert np.abs(grey - expected).max() <= 0.5
        assert photo.notes == (
            f"The file holds numbers: {black} is shown as black, {white} as white.",
        )

    def test_floats_that_fill_their_type_and_those_that_are_no_numbers(self):
        values = np.full((20, 20), -3e38, np.float32)
        values[0, :4] = [3e38, np.inf, np.nan, -np.inf]
        assert array(encode(values, "TIFF"))[0, :5, 0].tolist() == [255, 255, 0, 0, 0]
        assert "finite" in refusal(encode(np.full((20, 20), np.nan, np.float32), "TIFF"))

    @pytest.mark.parametrize("value", [0, 0.5, 300])
    def test_a_flat_float_picture_is_flat(self, value):
        grey = array(encode(np.full((20, 20), value, np.float32), "TIFF"))
        assert np.unique(grey).tolist() == [{0: 0, 0.5: 128, 300: 0}[value]]

    def test_lab_is_refused(self):
        assert "Lab" in refusal(encode(Image.new("LAB", (20, 20)), "TIFF"))


class TestTransparency:
    @pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
    def test_hidden_colour_becomes_white(self, kind):
        source = Image.new("RGBA", (40, 20), (0, 0, 0, 0))
        source.paste((255, 0, 0, 255), (20, 0, 40, 20))
        photo = load_image(encode(source, kind, **({"lossless": True} if kind == "WEBP" else {})))
        assert photo.picture.getpixel((5, 5)) == (255, 255, 255)
        assert photo.picture.getpixel((30, 5)) == RED
        assert photo.notes == (ON_WHITE,)

    def test_half_transparent_red_becomes_pink(self):
        photo = load_image(encode(Image.new("RGBA", (20, 20), (255, 0, 0, 128))))
        assert photo.picture.getpixel((5, 5)) == (255, 127, 127)

    def test_an_opaque_alpha_channel_is_not_worth_a_remark(self):
        source = Image.fromarray(noise()).convert("RGBA")
        photo = load_image(encode(source))
        assert photo.notes == ()
        assert np.array_equal(np.asarray(photo.picture), noise())

    @pytest.mark.parametrize("kind", ["PNG", "TIFF"])
    def test_grey_with_alpha(self, kind):
        photo = load_image(encode(Image.new("LA", (20, 20), (0, 0)), kind))
        assert photo.picture.getpixel((5, 5)) == (255, 255, 255)
        assert photo.notes == (ON_WHITE,)

    @pytest.mark.parametrize("kind", ["PNG", "GIF"])
    def test_palette_with_a_clear_entry(self, kind):
        source = Image.new("P", (20, 20), 1)
        source.putpalette([0, 0, 0, 255, 0, 0])
        source.paste(0, (0, 0, 10, 20))
        photo = load_image(encode(source, kind, transparency=0))
        assert photo.picture.getpixel((5, 5)) == (255, 255, 255)
        assert photo.picture.getpixel((15, 5)) == RED
        assert photo.notes == (ON_WHITE,)

    def test_palette_with_an_alpha_for_each_entry(self):
        source = Image.new("P", (20, 20), 0)
        source.putpalette([255, 0, 0, 0, 0, 255])
        photo = load_image(encode(source, transparency=bytes([128, 255])))
        assert photo.picture.getpixel((5, 5)) == (255, 127, 127)

    @pytest.mark.parametrize(("bits", "colour"), [(1, 0), (8, 0), (16, 0), (8, 2)])
    def test_one_colour_declared_clear(self, bits, colour):
        samples = 3 if colour == 2 else 1
        row = bytes(20 * samples * bits // 8 + (bits == 1))
        clear = chunk(b"tRNS", bytes(2 * samples))
        photo = load_image(png(20, 20, bits, colour, [row] * 20, clear))
        assert photo.picture.getpixel((5, 5)) == (255, 255, 255)
        assert photo.notes == (ON_WHITE,)

    def test_in_16_bits_only_the_declared_grey_itself_is_clear(self):
        row = struct.pack(">2H", 256, 257) * 10
        clear = chunk(b"tRNS", struct.pack(">H", 257))
        picture = array(png(20, 20, 16, 0, [row] * 20, clear))
        assert picture[0, :2, 0].tolist() == [1, 255]


class TestInks:
    @pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
    @pytest.mark.parametrize(
        ("ink", "colour"),
        [((0, 255, 255, 0), RED), ((0, 0, 0, 0), (255, 255, 255)), ((0, 0, 0, 255), (0, 0, 0))],
    )
    def test_cmyk_has_the_right_sign(self, kind, ink, colour):
        photo = load_image(encode(Image.new("CMYK", (32, 32), ink), kind))
        assert np.abs(np.subtract(photo.picture.getpixel((9, 9)), colour)).max() <= 2
        assert photo.notes == ("Printing inks (CMYK) were turned into screen colours, roughly.",)

    @pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
    def test_cmyk_goes_through_its_own_profile(self, kind):
        options = {"icc_profile": ink_profile()}
        cyan = encode(Image.new("CMYK", (32, 32), (255, 0, 0, 0)), kind, **options)
        key = encode(Image.new("CMYK", (32, 32), (0, 0, 0, 255)), kind, **options)
        assert load_image(cyan).picture.getpixel((9, 9)) == (0, 0, 0)  # only cyan darkens, in it
        assert load_image(key).picture.getpixel((9, 9)) == (255, 255, 255)
        assert "profile" in load_image(cyan).notes[0]

    @pytest.mark.parametrize("wrong", ["nonsense", "RGB"])
    def test_cmyk_with_a_profile_that_does_not_fit(self, wrong):
        screen = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        profile = screen if wrong == "RGB" else b"not a profile" * 20
        source = Image.new("CMYK", (32, 32), (0, 255, 255, 0))
        assert np.abs(array(encode(source, "JPEG", icc_profile=profile))[9, 9] - RED).max() <= 2

    def test_a_bad_profile_on_rgb_is_ignored(self):
        assert np.array_equal(array(encode(noise(), icc_profile=b"not a profile")), noise())
