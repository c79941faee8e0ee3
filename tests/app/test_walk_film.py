"""The exports as pictures: every weight, pixel and frame of real walks in its place."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageSequence

from app.components.tile_player import OnChip, PlayerData, story_lines
from app.figures import walk_film, walk_places, walk_still
from app.figures.walk_row import weights_so_far
from app.origin import Origin, lines
from app.text.export import IMPLEMENTATION, ORIGIN, STILL
from app.text.player import PLAYER
from app.theme import PAPER
from kernels.trace import BROKEN, Walk, walk
from vit.colours import probability_table
from vit.grid import PatchGrid

pytestmark = [pytest.mark.interpreter]

ROWS, COLUMNS, PREFIX = 9, 15, ("class",)  # 136 tokens: five tiles of 32, the last of 8
TOKENS, DIM, ROW, TILE = len(PREFIX) + ROWS * COLUMNS, 16, 5, 2
ORIGIN_HERE = Origin("Cat", "DINOv2 small", 11, 2, "torch 2, Triton 3", "2026-11-30")
WORDS = (*STILL.values(), *ORIGIN.values(), *IMPLEMENTATION.values())
CASES = [
    (name, broken)
    for name in ("fa1", "fa2", "fa3", "naive", "fa2-backward")
    for broken in (None, *(one.name for one in BROKEN.values() if name in one.applies_to))
]


def head() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores large enough that the maximum rises in several tiles."""
    q, k, v = torch.randn(3, TOKENS, DIM, generator=torch.Generator().manual_seed(3))
    return 2.5 * q, k, v


def walked(name: str, broken: str | None = None, causal: bool = False) -> Walk:
    return walk(*head(), name, TILE, 32, 32, broken, causal)


def data_of(right: Walk, wrong: Walk | None = None) -> PlayerData:
    size = (COLUMNS * 20, ROWS * 20)
    file = io.BytesIO()
    Image.new("RGB", size, (90, 90, 90)).save(file, "JPEG")
    return PlayerData(
        picture=file.getvalue(),
        size=size,
        grid=PatchGrid(ROWS, COLUMNS, 14, (0.0, 0.0, float(size[0]), float(size[1]))),
        prefix=PREFIX,
        walk=right,
        broken_walk=wrong,
        story=story_lines(right.implementation),
        on_chip=OnChip({"Q": 1}, 2, None, "a GPU"),
        words=PLAYER,
        followed_row=ROW,
    )


@pytest.fixture(scope="module")
def fa2() -> PlayerData:
    return data_of(walked("fa2"))


def drawn(sign: str) -> bytes:
    """The pixels of one sign."""
    image = Image.new("L", (40, 40))
    ImageDraw.Draw(image).text((4, 4), sign, 255, walk_still.font(20))
    return image.tobytes()


def open_film(film: bytes) -> Image.Image:
    return Image.open(io.BytesIO(film))


def frames_of(film: bytes) -> list[tuple[np.ndarray, float]]:
    """Pixels and milliseconds of each frame."""
    image = open_film(film)
    return [
        (np.asarray(frame.convert("RGB")), frame.info["duration"])
        for frame in ImageSequence.Iterator(image)
    ]


# --- the weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "broken"), CASES)
def test_the_weights_so_far_make_the_output_of_the_kernel(name, broken):
    """weights V is the output that the kernel stored, broken or not (in backward it is of P that dQ is made)."""
    shown = walked(name, broken)
    weights = weights_so_far(shown, len(shown.steps) - 1, ROW)
    if name == "fa2-backward":
        q, k, _ = (tensor.double() for tensor in head())
        exact = torch.softmax(shown.scale * q[TILE * 32 + ROW] @ k.T, 0)
        np.testing.assert_allclose(weights, exact, atol=1e-5)
        return
    made = torch.from_numpy(weights) @ head()[2].double()
    torch.testing.assert_close(made, shown.output[ROW].double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["fa1", "fa2", "fa3"])
def test_in_the_middle_the_weights_are_the_softmax_of_the_keys_so_far(name):
    shown = walked(name)
    q, k, _ = (tensor.double() for tensor in head())
    scores = shown.scale * q[TILE * 32 + ROW] @ k.T
    weights = weights_so_far(shown, 2, ROW)
    seen = np.arange(TOKENS) >= 64 if name == "fa3" else np.arange(TOKENS) < 96
    np.testing.assert_allclose(weights[seen], torch.softmax(scores[seen], 0), atol=1e-5)
    assert np.isnan(weights[~seen]).all()


@pytest.mark.parametrize("name", ["fa2", "fa3"])
def test_the_plane_shows_what_was_seen_and_nothing_else(name):
    """Of the band of weights: from the left, or in fa3 from the right."""
    shown = walked(name)
    spans = [walk_places.seen(shown, n) for n in range(len(shown.steps))]
    if name == "fa2":
        assert spans == [(0, 32), (0, 64), (0, 96), (0, 128), (0, 136)]
    else:
        assert spans == [(128, 136), (96, 136), (64, 136), (32, 136), (0, 136)]
    side = TOKENS * 4
    band = Image.new("RGB", (side, 4 * shown.rows), (1, 2, 3))
    pixels = np.asarray(walk_places.plane(shown, 1, side, band))[4 * TILE * 32 + 60]
    first, end = spans[1]
    painted = (pixels == (1, 2, 3)).all(-1).nonzero()[0] // 4
    assert painted.min() >= first
    assert painted.max() < end
    assert len(set(painted.tolist())) > (end - first) // 2


def test_a_causal_walk_has_no_weight_behind_its_own_token():
    weights = weights_so_far(walked("fa2", causal=True), 2, ROW)
    own = TILE * 32 + ROW
    assert np.nansum(weights[: own + 1]) == pytest.approx(1, abs=1e-5)
    assert not np.nansum(weights[own + 1 :])


# --- one step ---------------------------------------------------------------------------------------


def test_the_map_has_a_flat_rectangle_for_each_patch():
    weights = np.full(TOKENS, np.nan)
    weights[: len(PREFIX) + 2 * COLUMNS] = 0
    weights[len(PREFIX) + COLUMNS + 3] = 0.25
    grid = PatchGrid(ROWS, COLUMNS, 14, (0.0, 0.0, 300.0, 180.0))
    image = walk_places.row_map(weights, 0.25, len(PREFIX), grid, (COLUMNS * 10, ROWS * 10))
    pixels = np.asarray(image)
    assert (pixels[10:20, 30:40] == probability_table()[255]).all()
    assert (pixels[0:10] == probability_table()[0]).all()
    assert (pixels[20:] == walk_places.HOLLOW).all()


def test_queries_and_keys_are_covered_where_their_patches_lie(fa2):
    size = (COLUMNS * 20, ROWS * 20)
    bare = walk_places.bare(fa2, size)
    step = fa2.walk.steps[1]
    pixels = np.asarray(walk_places.photo(fa2, 1, bare)).astype(int)
    plain = np.asarray(bare).astype(int)
    for token in range(len(PREFIX), TOKENS):
        row, column = divmod(token - len(PREFIX), COLUMNS)
        centre = row * 20 + 10, column * 20 + 10
        red, _, blue = pixels[centre] - plain[centre]
        is_query = TILE * 32 <= token < TILE * 32 + 32
        is_key = step.key_start <= token < step.key_start + step.keys
        if token == TILE * 32 + ROW:
            continue  # its frame may lie over the centre of a small patch
        assert (blue > red, red > blue) == (is_query, is_key), token


def test_the_plane_shows_the_tile_that_is_visited(fa2):
    side = 640
    drawn = walk_places.plane(fa2.walk, 2, side, walk_places.band(fa2.walk, side))
    pixels = np.asarray(drawn)
    scale = side / TOKENS
    row = round((TILE * 32 + 16) * scale)
    assert tuple(pixels[row, round(16 * scale)]) != walk_places.HOLLOW  # seen
    assert tuple(pixels[row, round(112 * scale)]) == walk_places.HOLLOW  # not yet
    assert (
        tuple(pixels[round(16 * scale), round(16 * scale)]) == walk_places.HOLLOW
    )  # other queries


def test_flash_attention_1_has_passed_all_queries_of_the_keys_before():
    right = walked("fa1")
    side = 640
    pixels = np.asarray(walk_places.plane(right, 2, side, walk_places.band(right, side)))
    scale = side / TOKENS
    assert tuple(pixels[side - 8, round(16 * scale)]) == walk_places.VISITED
    assert tuple(pixels[side - 8, round(80 * scale)]) == walk_places.HOLLOW


def test_a_step_is_a_picture_of_twice_a_frame(fa2):
    film, still = (
        open_film(walk_film.as_gif(fa2, ORIGIN_HERE)),
        walk_film.step_png(fa2, ORIGIN_HERE, 1),
    )
    assert open_film(still).size == tuple(2 * side for side in film.size)
    assert still != walk_film.step_png(fa2, ORIGIN_HERE, 2)


@pytest.mark.parametrize("step", [-1, 5])
def test_a_step_that_is_not_there_is_refused(fa2, step):
    with pytest.raises(ValueError, match="steps 0 to 4"):
        walk_film.step_png(fa2, ORIGIN_HERE, step)


@pytest.mark.parametrize("name", ["naive", "fa1", "fa2-backward"])
@pytest.mark.parametrize("place", [0, -1])
def test_every_kind_of_walk_can_be_drawn(name, place):
    data = data_of(walked(name))
    steps = range(len(data.walk.steps))
    assert walk_film.step_png(data, ORIGIN_HERE, steps[place])


def test_numbers_are_the_walks_own(fa2):
    told = dict(walk_still.row_figures(fa2, 2))
    old, new = fa2.walk.steps[1], fa2.walk.steps[2]
    assert told[STILL["max"]] == f"{old.running_max[ROW]:.3g} to {new.running_max[ROW]:.3g}"
    assert told[STILL["normaliser"]] == f"{old.running_sum[ROW]:.3g} to {new.running_sum[ROW]:.3g}"
    assert told[STILL["factor"]] == f"{new.rescale[ROW]:.3g}"
    moved = dict(walk_still.moved_figures(fa2, 2))
    assert moved[STILL["error"]] == STILL["error_at_end"]
    assert moved[STILL["read"]].endswith(f"({fa2.tags['bytes']})")
    last = dict(walk_still.moved_figures(fa2, 4))
    assert f"{fa2.walk.largest_error:.1e}" in last[STILL["error"]]


def test_a_broken_walk_stands_beside_the_right_one(fa2):
    both = replace(fa2, broken_walk=walked("fa2", "output-not-rescaled"))
    alone, beside = (walk_film.step_png(one, ORIGIN_HERE, 4) for one in (fa2, both))
    assert open_film(beside).width > open_film(alone).width
    told = dict(walk_still.moved_figures(both, 4))[STILL["error"]]
    assert both.broken_walk is not None
    assert told.startswith(f"{both.broken_walk.largest_error:.3g}, right")


def test_only_signs_that_the_font_has_are_written():
    """A sign that is missing is drawn as the font's empty box."""
    signs = {sign for text in WORDS for sign in text} - {" "}
    assert not [sign for sign in signs if drawn(sign) == drawn("\u00d7")]


# --- the film ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [walk_film.as_gif, walk_film.as_webp])
def test_a_film_has_a_frame_for_each_step_and_rests_on_the_last(fa2, make):
    frames = frames_of(make(fa2, ORIGIN_HERE))
    assert len(frames) == len(fa2.walk.steps)
    pixels = [one for one, _ in frames]
    assert all((one != other).any() for one, other in pairwise(pixels))
    durations = [round(ms) for _, ms in frames]
    assert durations[-1] == walk_film.LAST_MS
    assert set(durations[:-1]) == {walk_film.LONGEST_MS}


def test_the_last_frame_is_the_last_step(fa2):
    foot = lines(ORIGIN_HERE, fa2.walk, None)
    drawn = walk_still.draw(walk_still.scene(fa2, foot), len(fa2.walk.steps) - 1).reduce(2)
    shown, _ = frames_of(walk_film.as_gif(fa2, ORIGIN_HERE))[-1]
    assert np.abs(shown.astype(int) - np.asarray(drawn)).mean() < 3  # 256 colours for all


def test_the_ground_of_a_gif_is_white_and_its_scale_has_no_bands(fa2):
    shown, _ = frames_of(walk_film.as_gif(fa2, ORIGIN_HERE))[-1]
    assert tuple(shown[2, 2]) == PAPER
    colours = {tuple(int(part) for part in pixel) for pixel in shown.reshape(-1, 3)}
    table = {
        tuple(int(part) for part in colour) for colour in probability_table(walk_film.SCALE_COLOURS)
    }
    assert len(table & colours) > 0.9 * walk_film.SCALE_COLOURS


def test_a_long_walk_keeps_first_and_last_step():
    steps = walk_film.chosen_steps(1000)
    assert (steps[0], steps[-1], len(steps)) == (0, 999, walk_film.MOST_FRAMES)
    assert len(set(steps)) == walk_film.MOST_FRAMES
    assert walk_film.chosen_steps(3) == (0, 1, 2)


def test_a_film_of_one_step_rests(monkeypatch):
    one = data_of(walk(*head(), "fa2", 0, 256, 256))
    assert len(one.walk.steps) == 1
    for film in (walk_film.as_gif(one, ORIGIN_HERE), walk_film.as_webp(one, ORIGIN_HERE)):
        assert getattr(open_film(film), "n_frames", 1) == 1


def test_a_film_that_is_too_large_is_made_smaller(fa2, monkeypatch):
    usual = walk_film.as_gif(fa2, ORIGIN_HERE)
    monkeypatch.setattr(walk_film, "MOST_BYTES", len(usual) - 1)
    smaller = walk_film.as_gif(fa2, ORIGIN_HERE)
    assert len(smaller) < len(usual)
    assert open_film(smaller).width < open_film(usual).width


def test_where_it_comes_from_is_told(fa2):
    first, second = lines(ORIGIN_HERE, fa2.walk, None)
    for part in (
        "Cat",
        "DINOv2 small",
        "layer 11, head 2",
        "FlashAttention-2",
        "32 by 32",
        "float32",
    ):
        assert part in first
    assert "2026-11-30" in second
    assert "Triton 3" in second
    broken, _ = lines(ORIGIN_HERE, fa2.walk, walked("fa2", "no-maximum"))
    assert "broken: no-maximum" in broken
