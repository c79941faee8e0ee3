"""What a picture will need, by formula; the formula is held against a real trace."""

from __future__ import annotations

import logging

import pytest
import torch

from app import compute, memory
from app.memory import available_bytes, forecast, in_words
from app.samples import SAMPLES
from vit import graph, load_image, load_model
from vit.config import PRESETS, ViTConfig
from vit.grid import PatchGrid
from vit.model import VisionTransformer
from vit.trace import Trace

SQUARE = PatchGrid(37, 37, 14, (0, 0, 512, 512))


def test_the_matrices_of_518_pixels_are_540_megabytes() -> None:
    need = forecast(PRESETS["dinov2-small"], SQUARE, 4)
    assert need.tokens == 1370
    assert need.matrices == 12 * 6 * 1370 * 1370 * 4 == 540_547_200
    assert in_words(need.matrices) == "541 MB"
    assert need.ours < need.storing_all


def test_what_is_kept_is_what_a_trace_holds() -> None:
    config = ViTConfig(dim=64, layers=2, heads=4, position_grid=4, registers=3)
    grid = PatchGrid(3, 5, 14, (0, 0, 50, 30))
    model = VisionTransformer(config).eval()
    pixels = torch.zeros(1, 3, *grid.input_size)
    trace = Trace(tuple(model.layers(pixels)), grid, config.prefix, 0.25, "auto", "test")
    need = forecast(config, grid, 4)
    assert (need.tokens, need.kept) == (trace.tokens, trace.nbytes)
    weights = sum(parameter.numel() for parameter in model.parameters()) * 4
    assert need.weights == pytest.approx(weights, rel=0.1)


def test_half_precision_halves_all_but_the_log_sum_exp() -> None:
    full = forecast(PRESETS["dinov2-small"], SQUARE, 4)
    half = forecast(PRESETS["dinov2-small"], SQUARE, 2)
    assert (2 * half.matrices, 2 * half.weights) == (full.matrices, full.weights)
    assert 2 * half.kept == full.kept + 12 * 1370 * 6 * 4


# --- a picture that is replayed from a graph ------------------------------------------------------------


@pytest.mark.parametrize("native", [True, False])
def test_a_graph_holds_a_place_for_all_that_it_reads_and_leaves(
    monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """By the places of a captured run; the positions of a grid of the weights' own size are weights."""
    monkeypatch.setattr(graph, "record", lambda run, device, streams: (None, run()))
    config = ViTConfig(dim=64, layers=2, heads=4, position_grid=4, registers=3)
    grid = PatchGrid(4, 4 if native else 6, 14, (0, 0, 50, 30))
    model = VisionTransformer(config).eval().requires_grad_(False)
    pixels = torch.zeros(1, 3, *grid.input_size)
    run = model.graphs.capture(model, pixels, "eager")
    places = [run.pixels, run.hidden, run.qkv, run.log_sum_exp]
    places += [] if native else [run.positions]
    need = forecast(config, grid, 4, replayed=True)
    assert need.graph == sum(place.nbytes for place in places)
    assert need.ours == forecast(config, grid, 4).ours + need.graph
    assert need.storing_all == forecast(config, grid, 4).storing_all


def test_the_graph_of_518_pixels_holds_41_megabytes() -> None:
    assert in_words(forecast(PRESETS["dinov2-small"], SQUARE, 2, replayed=True).graph) == "41 MB"
    assert forecast(PRESETS["dinov2-small"], SQUARE, 2).graph == 0


@pytest.mark.parametrize("name", ["fa2", "fa3", "eager"])
@pytest.mark.parametrize("rows", [8, 37, 100])
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_whether_it_is_replayed_is_what_the_model_says(
    monkeypatch: pytest.MonkeyPatch, kind: str, rows: int, name: str
) -> None:
    """The model itself is asked on pixels of this size, as if it were on a GPU."""
    config, device = PRESETS["dinov2-small"], torch.device(kind)
    grid = PatchGrid(rows, 60, 14, (0, 0, 9, 9))
    monkeypatch.setattr(memory, "choose", lambda problem, device: name)
    monkeypatch.setattr(VisionTransformer, "device", device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with torch.device("meta"):
        model = VisionTransformer(config).requires_grad_(False)
        pixels = torch.zeros(1, 3, *grid.input_size)
    says = graph.reason_against(model, pixels, name) is None
    assert memory.is_replayed(memory.problem_of(config, grid, 2), device) == says


def test_the_app_counts_it_where_a_graph_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "choose", lambda problem, device: "fa2")
    monkeypatch.setattr(compute, "available_bytes", lambda device: 10**12)
    shown = load_image(SAMPLES["cat"].path)
    graphs = {}
    for kind in ("cuda", "cpu"):
        monkeypatch.setattr(compute, "device", lambda kind=kind: torch.device(kind))
        sizes = [compute.size(shown, "dinov2-small", side) for side in (518, 3108)]
        graphs[kind] = [one.forecast.graph > 0 for one in sizes]
    assert graphs == {"cuda": [True, False], "cpu": [False, False]}


def test_free_memory_is_told() -> None:
    assert available_bytes(torch.device("cpu")) > 2**20


def test_a_container_has_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.memory.free_in_container", lambda: 12345)
    assert available_bytes(torch.device("cpu")) == 12345


@pytest.mark.gpu
@pytest.mark.parametrize("side", [518, 1036, 2072])
def test_the_forecast_is_near_the_allocators_peak(side: int) -> None:
    """Within a fifth of what a run really took on a GPU, beside cuBLAS's workspace of 32 MiB."""
    model = load_model("dinov2-small", "cuda", torch.float16)
    photo = load_image(SAMPLES["astronaut"].path)
    model.trace(photo, side)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    kept = model.trace(photo, side)
    replayed = memory.is_replayed(model.problem(kept.grid), model.device)
    need = forecast(model.config, kept.grid, 2, replayed)
    peak = torch.cuda.max_memory_allocated()
    logging.info("%d px: forecast %.0f MB, peak %.0f MB", side, need.ours / 1e6, peak / 1e6)
    assert need.ours == pytest.approx(peak - 2**25, rel=0.2)


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [(7, "7 bytes"), (1370, "1.4 kB"), (45e6, "45 MB"), (6.1e9, "6.1 GB"), (75e9, "75 GB")],
)
def test_bytes_in_words(nbytes: float, words: str) -> None:
    assert in_words(nbytes) == words
