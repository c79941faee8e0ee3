"""The pictures that the app ships: they open, they are small, and each is credited."""

import pytest

from app.samples import FOLDER, SAMPLES
from vit import load_image


def test_the_cat_is_the_default():
    assert next(iter(SAMPLES)) == "cat"
    assert [sample.title for sample in SAMPLES.values()] == ["Cat", "Astronaut", "Coffee", "Rocket"]


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_opens_whole_and_without_remarks(name):
    photo = load_image(SAMPLES[name].path)
    assert photo.notes == ()
    assert min(photo.picture.size) >= 300
    assert photo.crop == (0, 0, *photo.picture.size)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_is_small_enough_to_ship(name):
    assert SAMPLES[name].path.stat().st_size < 300_000


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_is_credited(name):
    sample = SAMPLES[name]
    lines = (FOLDER / "CREDITS.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{sample.path.name}` |")]
    assert sample.credit in line
    assert sample.licence.lower() in line.lower()


def test_no_picture_lies_here_without_credit():
    pictures = {path for path in FOLDER.iterdir() if path.suffix in {".jpg", ".png"}}
    assert pictures == {sample.path for sample in SAMPLES.values()}
