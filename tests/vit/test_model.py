"""Our model against transformers': the same weights, the same hidden states, the same attention."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from kernels import attention_rows
from tests.vit.oracle import judge_of, save_tiny
from vit import MAPS, Photo, load_model
from vit.grid import PatchGrid
from vit.model import VisionTransformer
from vit.trace import Trace

LOG = logging.getLogger(__name__)
# patches: 518 x 518, 224 x 224 and 280 x 420 pixels
SIZES = [pytest.param(37, 37, marks=pytest.mark.slow), (16, 16), (20, 30)]


@pytest.fixture(scope="module")
def judge(
    model: VisionTransformer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[nn.Module]:
    folder = tmp_path_factory.mktemp("judge") / "checkpoint"
    yield judge_of(model, folder)
    shutil.rmtree(folder)


def pixels_of(photo: Photo, model: VisionTransformer, rows: int, columns: int) -> Tensor:
    """The photo on a grid of exactly this shape, stretched where it must be."""
    grid = PatchGrid(rows, columns, model.config.patch, photo.crop)
    return photo.pixels(grid, model.config.mean, model.config.std)


def trace_of(model: VisionTransformer, pixels: Tensor) -> Trace:
    """The trace of pixels that are given as they are."""
    height, width = (side // model.config.patch for side in pixels.shape[-2:])
    grid = PatchGrid(height, width, model.config.patch, (0, 0, pixels.shape[-1], pixels.shape[-2]))
    layers = tuple(model.layers(pixels))
    return Trace(layers, grid, model.config.prefix, model.config.head_dim**-0.5, "auto", model.name)


def whole_attention(trace: Trace, layer: int) -> Tensor:
    """All of P of one layer, [heads, tokens, tokens], from the log-sum-exp."""
    part = trace.layers[layer]
    return attention_rows(part.q, part.k, part.log_sum_exp, range(trace.tokens), trace.scale)[0]


# --- the packaged model -----------------------------------------------------------------------------


@torch.inference_mode()
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_last_hidden_state(
    model: VisionTransformer,
    judge: nn.Module,
    cat: Photo,
    rows: int,
    columns: int,
) -> None:
    pixels = pixels_of(cat, model, rows, columns)
    theirs = judge(pixels).last_hidden_state
    ours = model(pixels)
    assert ours.shape == theirs.shape == (1, 1 + rows * columns, 384)
    error = (ours - theirs).abs().max().item()
    LOG.info("%d x %d pixels: largest error %.2g", rows * 14, columns * 14, error)
    assert error <= 1e-4


@torch.inference_mode()
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (8, 13)])
def test_maps_are_the_attention(
    model: VisionTransformer, judge: nn.Module, cat: Photo, rows: int, columns: int
) -> None:
    pixels = pixels_of(cat, model, rows, columns)
    attentions = judge(pixels, output_attentions=True).attentions
    trace = trace_of(model, pixels)
    assert len(attentions) == len(trace.layers) == 12
    for layer, theirs in enumerate(attentions):
        ours = whole_attention(trace, layer)
        torch.testing.assert_close(ours[:, 0], theirs[0, :, 0], atol=1e-5, rtol=0)
        # Over all rows a few weights near 0.5 differ more: there transformers itself is 2e-5 away
        # from its own float64.
        torch.testing.assert_close(ours, theirs[0], atol=5e-5, rtol=0)
    for layer in (0, 5, -1):
        theirs = attentions[layer][0]  # [heads, tokens, tokens]
        for query in ("class", (0, 0), (rows - 1, columns - 1), (2, 7)):
            token = 0 if isinstance(query, str) else 1 + query[0] * columns + query[1]
            looks = theirs[:, token, 1:].reshape(6, rows, columns)
            looked_at = theirs[:, 1:, token].reshape(6, rows, columns)
            row, column = MAPS["row"](trace, layer, query), MAPS["column"](trace, layer, query)
            torch.testing.assert_close(row, looks, atol=1e-5, rtol=0)
            torch.testing.assert_close(column, looked_at, atol=1e-5, rtol=0)


def test_trace_of_a_photo(model: VisionTransformer, cat: Photo) -> None:
    steps: list[tuple[int, int]] = []
    trace = model.trace(cat, side=224, progress=lambda done, of: steps.append((done, of)))
    assert steps == [(i, 12) for i in range(1, 13)]
    assert (trace.grid, trace.prefix, trace.model) == (cat.grid(224), ("class",), "dinov2-small")
    expected = trace_of(model, cat.pixels(trace.grid, model.config.mean, model.config.std))
    for ours, theirs in zip(trace.layers, expected.layers, strict=True):
        torch.testing.assert_close(ours.q, theirs.q)
        torch.testing.assert_close(ours.log_sum_exp, theirs.log_sum_exp)
    assert MAPS["row"](trace).shape == (6, trace.grid.rows, trace.grid.columns)


def test_a_caller_may_stop_the_trace(model: VisionTransformer, cat: Photo) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int, of: int) -> None:
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        model.trace(cat, side=56, progress=stop)


def test_the_model_keeps_nothing_of_a_picture(model: VisionTransformer, cat: Photo) -> None:
    before = dict(vars(model.blocks[0].attention))
    model.trace(cat, side=56)
    assert vars(model.blocks[0].attention) == before


# --- every kind of checkpoint, on tiny ones ---------------------------------------------------------


@torch.inference_mode()
@pytest.mark.parametrize("registers", [0, 4])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (9, 2), (6, 8), (1, 1)])
def test_tiny_models(tmp_path: Path, registers: int, rows: int, columns: int) -> None:
    judge = save_tiny(tmp_path / "tiny", registers)
    model = load_model(tmp_path / "tiny", device="cpu")
    pixels = torch.randn(1, 3, rows * 14, columns * 14)
    theirs = judge(pixels, output_attentions=True)
    torch.testing.assert_close(model(pixels), theirs.last_hidden_state, atol=1e-4, rtol=1e-4)
    trace = trace_of(model, pixels)
    assert (
        trace.prefix
        == ("class", "register 1", "register 2", "register 3", "register 4")[: 1 + registers]
    )
    assert trace.tokens == 1 + registers + rows * columns
    for layer, attention in enumerate(theirs.attentions):
        torch.testing.assert_close(whole_attention(trace, layer), attention[0], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_registers_shift_nothing(tmp_path: Path) -> None:
    judge = save_tiny(tmp_path / "tiny", registers=4)
    model = load_model(tmp_path / "tiny", device="cpu")
    rows, columns = 3, 5
    pixels = torch.randn(1, 3, rows * 14, columns * 14)
    theirs = judge(pixels, output_attentions=True).attentions[1][0]  # [heads, tokens, tokens]
    trace = trace_of(model, pixels)
    queries = {"class": 0, "register 1": 1, "register 4": 4, (0, 0): 5, (1, 2): 12, (2, 4): 19}
    for query, token in queries.items():
        looks = theirs[:, token, 5:].reshape(3, rows, columns)
        looked_at = theirs[:, 5:, token].reshape(3, rows, columns)
        torch.testing.assert_close(MAPS["row"](trace, 1, query), looks, atol=1e-5, rtol=0)
        torch.testing.assert_close(MAPS["column"](trace, 1, query), looked_at, atol=1e-5, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("implementation", ["eager", "torch-cpu-flash"])
def test_a_batch_is_each_picture_alone(tmp_path: Path, implementation: str) -> None:
    save_tiny(tmp_path / "tiny", registers=4)
    model = load_model(tmp_path / "tiny", device="cpu")
    pixels = torch.randn(2, 3, 42, 70)
    both = model(pixels, implementation)
    torch.testing.assert_close(both[1:], model(pixels[1:], implementation), atol=1e-5, rtol=1e-5)
