"""load_image: whatever cannot be shown is refused in one sentence, before it costs anything."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from tests.vit.picture_files import blank, encode, noise, png, refusal, tiff
from vit.image import MAX_FILE_BYTES, ImageError, load_image
from vit.image.limits import MAX_PIXELS, MAX_SIDE


class TestRefusals:
    def test_empty(self):
        assert refusal(b"") == "This file is empty; choose a picture."

    @pytest.mark.parametrize(
        ("content", "word"),
        [
            (b"<!DOCTYPE html><html><body>hello</body></html>", "web page"),
            (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200), "HEIC"),
            (b"%PDF-1.7\n", "PDF"),
            (b"just words, and not few of them", "not a picture"),
            (bytes(1000), "not a picture"),
        ],
    )
    def test_what_is_no_picture(self, content, word):
        sentence = refusal(content)
        assert word in sentence
        assert "try again" in sentence

    @pytest.mark.parametrize("kind", ["PPM", "ICO", "EPS", "TGA", "JPEG2000"])
    def test_formats_that_are_not_on_the_list(self, kind):
        assert "save it as JPEG or PNG" in refusal(encode(noise(48, 48), kind))

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "AVIF", "BMP"])
    def test_a_file_cut_off_in_its_pixels(self, kind):
        whole = encode(noise(200, 200), kind)
        assert "damaged" in refusal(whole[: len(whole) * 2 // 3])

    @pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "AVIF"])
    def test_a_file_cut_off_in_its_header(self, kind):
        assert "damaged" in refusal(encode(noise(), kind)[:14])

    def test_a_tiff_of_a_kind_that_nothing_reads(self):
        assert "of a rare kind" in refusal(tiff(np.zeros((20, 20)), bits=16, photometric=9))

    def test_a_flipped_bit_in_a_png(self):
        data = bytearray(encode(noise()))
        data[len(data) // 2] ^= 16
        assert "damaged" in refusal(bytes(data))

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_damage_gives_a_picture_or_a_sentence(self, data):
        kind = data.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF"]))
        content = bytearray(encode(noise(20, 30), kind))
        place = st.integers(0, len(content) - 1)
        for at, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=8)):
            content[at] = value
        content = content[: data.draw(place)] if data.draw(st.booleans()) else content
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                photo = load_image(bytes(content))
            except ImageError:
                return
        assert photo.picture.mode == "RGB"

    def test_sentences_never_repeat_what_the_file_holds(self):
        assert "script" not in refusal(b"<html><script>alert(1)</script></html>")

    def test_no_memory_is_a_sentence_too(self, monkeypatch):
        def fail(self):
            raise MemoryError

        monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
        assert "memory" in refusal(encode(noise(), "BMP"))


class TestSizes:
    @pytest.fixture
    def never_decoded(self, monkeypatch):
        """Fails the test if a picture is decoded before it is refused."""
        decoded = []

        def load(self):
            decoded.append(self)

        monkeypatch.setattr(ImageFile.ImageFile, "load", load)
        yield
        assert decoded == []

    @pytest.mark.parametrize(
        ("width", "height", "says"),
        [
            (1, 1, "at least 14"),
            (13, 200, "at least 14"),
            (20, 401, "20 to 1"),
            (401, 20, "20 to 1"),
            (MAX_SIDE + 1, 700, "12,000"),
            (700, MAX_SIDE + 1, "12,000"),
            (8001, 5000, "40 million"),
        ],
    )
    @pytest.mark.usefixtures("never_decoded")
    def test_beyond_the_limits(self, width, height, says):
        sentence = refusal(blank(width, height))
        assert says in sentence
        assert f"{height} pixels high and {width} wide" in sentence

    @pytest.mark.parametrize(("width", "height"), [(14, 14), (20, 400), (400, 20)])
    def test_at_the_limits(self, width, height):
        assert load_image(blank(width, height)).picture.size == (width, height)

    @pytest.mark.usefixtures("never_decoded")
    @pytest.mark.parametrize("side", [10_000, 20_000])  # Pillow only warns of the first
    def test_bombs_do_not_explode(self, side):
        bomb = blank(side, side)
        assert len(bomb) < 60_000
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            sentence = refusal(bomb)
        assert "12,000" in sentence or "million pixels" in sentence

    @pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
    def test_refusing_100_million_pixels_takes_hardly_any_memory(self):
        def memory_kb(name: str) -> int:
            status = Path("/proc/self/status").read_text(encoding="ascii")
            return int(re.search(rf"{name}:\s+(\d+)", status).group(1))

        bomb = png(10_000, 10_000, 8, 0, [bytes(10_000)] * 10_000)
        before = memory_kb("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # starts VmHWM anew
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            refusal(bomb)
        assert memory_kb("VmHWM") - before < 50_000

    def test_pillows_own_limits_are_left_alone(self):
        most_pixels = Image.MAX_IMAGE_PIXELS
        load_image(encode(noise()))
        assert most_pixels == Image.MAX_IMAGE_PIXELS
        assert most_pixels is not None
        assert most_pixels > MAX_PIXELS
        assert ImageFile.LOAD_TRUNCATED_IMAGES is False

    def test_file_size_is_checked_before_the_file_is_read(self, tmp_path, monkeypatch):
        path = tmp_path / "large.jpg"
        with path.open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        monkeypatch.delattr(Path, "open")
        assert "20 MB" in refusal(path)
        assert "20 MB" in refusal(bytes(MAX_FILE_BYTES + 1))

    def test_an_endless_stream_is_not_read_to_its_end(self):
        with Path("/dev/zero").open("rb") as endless:
            assert "20 MB" in refusal(endless)
