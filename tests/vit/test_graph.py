"""Runs that are replayed from a graph: when, and that they give what launching kernel by kernel gives.

Without a GPU the graph is a stand-in that runs the same work again; everything around it is the real thing.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernels import implementations
from tests.vit.conftest import SAMPLES, TINY
from vit import Photo, graph, load_image, load_model
from vit.block import Block
from vit.config import ViTConfig
from vit.graph import GRAPH_TOKENS, GRAPHED, Graphs, reason_against
from vit.model import VisionTransformer
from vit.trace import LayerTrace


def same(some: tuple[LayerTrace, ...], others: tuple[LayerTrace, ...]) -> bool:
    """Bit for bit."""
    return len(some) == len(others) and all(
        torch.equal(getattr(one, name), getattr(other, name))
        for one, other in zip(some, others, strict=True)
        for name in ("q", "k", "v", "log_sum_exp")
    )


def tiny(config: ViTConfig = TINY) -> VisionTransformer:
    torch.manual_seed(3)
    model = VisionTransformer(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model.requires_grad_(False).eval()


# --- without a GPU ----------------------------------------------------------------------------------


class Stream:
    """Where nothing is queued there is nothing to wait for."""

    def wait_event(self, event: object) -> None:
        pass

    def record_event(self) -> Stream:
        return self

    def synchronize(self) -> None:
        pass


class Again:
    """Stands for a graph: does the same work again, and leaves the result in the same place."""

    def __init__(self, run) -> None:
        self.run, self.result = run, run()

    def replay(self) -> None:
        self.result.copy_(self.run())


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    """What was captured, in order."""
    made: list[Again] = []

    def record(run, device, streams) -> tuple[Again, Tensor]:
        made.append(Again(run))
        return made[-1], made[-1].result

    monkeypatch.setattr(graph, "record", record)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    return made


def test_a_cpu_replays_nothing(model: VisionTransformer, cat: Photo) -> None:
    pixels, _ = model.prepare(cat, 56)
    assert reason_against(model, pixels, "auto") is not None
    model.trace(cat, 56)
    assert not model.graphs.kept


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> VisionTransformer:
    """A model that says it is on a GPU, for the rule alone."""
    monkeypatch.setattr(VisionTransformer, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(VisionTransformer, "choose_implementation", lambda self, grid: "fa2")
    return tiny()


def pixels_of(tokens: int) -> Tensor:
    return torch.empty(1, 3, 14, 14 * (tokens - 1), device="meta")


def test_a_small_picture_is_replayed(on_gpu: VisionTransformer) -> None:
    assert reason_against(on_gpu, pixels_of(GRAPH_TOKENS), "auto") is None
    assert reason_against(on_gpu, pixels_of(9), "fa2") is None


@pytest.mark.parametrize(
    ("tokens", "batch", "implementation", "word"),
    [
        (GRAPH_TOKENS + 1, 1, "auto", "tokens"),
        (9, 2, "auto", "one picture"),
        (9, 1, "eager", "not eager"),
    ],
)
def test_why_it_is_launched(on_gpu, tokens, batch, implementation, word) -> None:
    reason = reason_against(on_gpu, pixels_of(tokens).expand(batch, -1, -1, -1), implementation)
    assert reason is not None
    assert word in reason
    assert reason.endswith(".")


def test_launched_where_gradients_are_wanted(on_gpu: VisionTransformer) -> None:
    next(iter(on_gpu.stack)).scale1.requires_grad_(True)  # any one weight
    assert "backward" in (reason_against(on_gpu, pixels_of(9), "fa2") or "")
    with torch.no_grad():
        assert reason_against(on_gpu, pixels_of(9), "fa2") is None


def test_launched_inside_another_graph(on_gpu: VisionTransformer, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert reason_against(on_gpu, pixels_of(9), "fa2") is not None


def test_a_model_may_keep_no_graphs(on_gpu: VisionTransformer) -> None:
    on_gpu.graphs = Graphs(0)
    assert reason_against(on_gpu, pixels_of(9), "fa2") == "This model keeps no graphs."


@pytest.mark.parametrize("registers", [0, 4])
def test_replayed_equals_launched(captures, registers: int) -> None:
    model = tiny(ViTConfig(dim=12, layers=4, heads=2, position_grid=3, registers=registers))
    for rows, columns in [(3, 3), (2, 5), (3, 3)]:
        pixels = torch.randn(1, 3, 14 * rows, 14 * columns)
        hidden = model.graphs.hidden(model, pixels, "auto")
        torch.testing.assert_close(hidden, model(pixels), atol=1e-5, rtol=1e-5)
        kept, launched = model.graphs.layers(model, pixels, "auto"), tuple(model.layers(pixels))
        for ours, theirs in zip(kept, launched, strict=True):
            torch.testing.assert_close(ours.q, theirs.q, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(ours.v, theirs.v, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(ours.log_sum_exp, theirs.log_sum_exp, atol=1e-5, rtol=1e-5)
            assert ours.nbytes == theirs.nbytes
        assert same(model.graphs.layers(model, pixels, "auto", only=2), kept[2:3])
    assert len(captures) == 2


def test_patches_as_one_product() -> None:
    """What a GPU computes in place of the convolution, also where the input is no whole number of patches."""
    embedding, pixels = tiny().embedding, torch.randn(2, 3, 14 * 3 + 5, 14 * 4 + 13)
    weight, bias = embedding.projection.weight.flatten(1), embedding.projection.bias
    product = torch.nn.functional.linear(embedding.cut(pixels, 3, 4), weight, bias)
    torch.testing.assert_close(product, embedding.project(pixels, 3, 4), atol=2e-5, rtol=1e-5)


def test_the_layers_may_share_one_piece_of_memory() -> None:
    model, pixels = tiny(), torch.randn(1, 3, 28, 70)
    into = model.empty_qkv(pixels).fill_(torch.nan)
    packed, apart = tuple(model.layers(pixels, into=into)), tuple(model.layers(pixels))
    for number, (ours, theirs) in enumerate(zip(packed, apart, strict=True)):
        torch.testing.assert_close(ours.k, theirs.k, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours.log_sum_exp, theirs.log_sum_exp, atol=1e-5, rtol=1e-5)
        assert ours.q.data_ptr() == into[number].data_ptr()
    assert not into.isnan().any()


def test_the_next_picture_overwrites_nothing(captures) -> None:
    model, pictures = tiny(), torch.randn(2, 1, 3, 42, 42)
    first = model.graphs.layers(model, pictures[0], "auto")
    hidden = model.graphs.hidden(model, pictures[0], "auto")
    before = copy.deepcopy((first, hidden))
    second = model.graphs.layers(model, pictures[1], "auto")
    model.graphs.hidden(model, pictures[1], "auto")
    assert same(first, before[0])
    assert torch.equal(hidden, before[1])
    assert not same(first, second)


def test_the_size_not_used_for_longest_goes_first(captures) -> None:
    model = tiny()
    model.graphs = Graphs(2)

    def look(columns: int) -> None:
        model.graphs.hidden(model, torch.randn(1, 3, 28, 14 * columns), "auto")

    for columns in (1, 2, 1, 3, 1):
        look(columns)
    assert [key[1] // 14 for key in model.graphs.kept] == [3, 1]
    assert len(captures) == 3
    look(2)
    assert len(captures) == 4


def test_changed_weights_are_seen(captures) -> None:
    model, pixels = tiny(), torch.randn(1, 3, 28, 28)
    before = model.graphs.hidden(model, pixels, "auto")
    next(iter(model.stack)).attention.qkv.weight.mul_(1.5)  # in place
    changed = model.graphs.hidden(model, pixels, "auto")
    assert not torch.equal(changed, before)
    model.load_state_dict(tiny().state_dict(), assign=True)  # other tensors altogether
    again = model.graphs.hidden(model, pixels, "auto")
    assert torch.equal(again, before)
    assert len(model.graphs.kept) == 1
    model.bfloat16()
    assert not model.graphs.kept
    assert model.graphs.hidden(model, pixels, "eager").dtype == torch.bfloat16


def replace_weight(block: Block) -> None:
    block.norm2.weight = torch.nn.Parameter(block.norm2.weight * 1.5, requires_grad=False)


def replace_module(block: Block) -> None:
    block.norm2 = copy.deepcopy(block.norm2)
    block.norm2.weight.mul_(1.5)


def replace_data(block: Block) -> None:
    block.norm2.weight.data = block.norm2.weight * 1.5


def write_in_place(block: Block) -> None:
    with torch.inference_mode():
        block.norm2.weight.mul_(1.5)


@pytest.mark.parametrize("change", [replace_weight, replace_module, replace_data, write_in_place])
def test_every_way_of_changing_a_weight_is_seen(captures, change: Callable[[Block], None]) -> None:
    model, pixels = tiny(), torch.randn(1, 3, 28, 28)
    before = model.graphs.hidden(model, pixels, "auto")
    assert torch.equal(model.graphs.hidden(model, pixels, "auto"), before)
    assert len(captures) == 1
    change(next(iter(model.stack)))
    assert not torch.equal(model.graphs.hidden(model, pixels, "auto"), before)
    assert len(captures) == 2


def test_a_replay_walks_no_modules(captures, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walking the modules of ViT-S takes Python about as long as a GPU takes for the picture."""
    model, pixels = tiny(), torch.randn(1, 3, 28, 28)
    before = model.graphs.hidden(model, pixels, "auto")

    def walk(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(torch.nn.Module, "named_modules", walk)
    assert torch.equal(model.graphs.hidden(model, pixels, "auto"), before)


@pytest.mark.parametrize("first_in_inference", [False, True])
def test_a_head_can_be_trained_on_what_comes_out(captures, first_in_inference: bool) -> None:
    model, pixels = tiny(), torch.randn(1, 3, 28, 28)
    with torch.inference_mode(first_in_inference):
        model.graphs.hidden(model, pixels, "auto")
    head = torch.nn.Linear(TINY.dim, 1)
    head(model.graphs.hidden(model, pixels, "auto")).sum().backward()
    assert head.weight.grad is not None
    assert len(captures) == 1


def test_a_copy_has_graphs_of_its_own(captures) -> None:
    model, pixels = tiny(), torch.randn(1, 3, 28, 28)
    model.graphs.hidden(model, pixels, "auto")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not other.graphs.kept
    model.graphs.clear()
    assert not model.graphs.kept


# --- on a GPU ---------------------------------------------------------------------------------------

SIDES = [56, 224, 518, 1036]


@pytest.fixture(scope="module")
def half() -> VisionTransformer:
    return load_model("dinov2-small", "cuda", torch.float16)


@pytest.fixture(scope="module")
def launched(half: VisionTransformer) -> VisionTransformer:
    """The same weights without graphs."""
    other = copy.copy(half)
    other.graphs = Graphs(0)
    return other


@pytest.fixture(scope="module")
def photos() -> list[Photo]:
    return [load_image(SAMPLES / name) for name in ("astronaut.jpg", "cat.png")]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["auto", *GRAPHED])
@pytest.mark.parametrize("side", SIDES)
def test_gpu_replayed_is_launched_bit_for_bit(half, launched, photos, side: int, name: str) -> None:
    for photo in (*photos, photos[0]):
        pixels, grid = half.prepare(photo, side)
        if name != "auto":
            why_not = implementations(half.problem(grid)).get(name, f"There is no {name} yet.")
            if why_not is not None:
                pytest.skip(why_not)
        assert reason_against(half, pixels, name) is None
        assert torch.equal(half(pixels, name), launched(pixels, name))
        ours, theirs = half.trace(photo, side, name), launched.trace(photo, side, name)
        assert same(ours.layers, theirs.layers)
        assert (ours.grid, ours.implementation) == (theirs.grid, theirs.implementation)
        assert same(half.trace(photo, side, name, only=-1).layers, theirs.layers[-1:])
    assert half.graphs.kept
    assert not launched.graphs.kept


@pytest.mark.gpu
def test_gpu_the_next_picture_overwrites_nothing(half, photos) -> None:
    square = [photo.cropped("square") for photo in photos]
    first = half.trace(square[0], 518)
    before = copy.deepcopy(first.layers)
    second = half.trace(square[1], 518)
    torch.cuda.synchronize()
    assert same(first.layers, before)
    assert not same(first.layers, second.layers)


@pytest.mark.gpu
def test_gpu_from_other_streams(half, launched, photos) -> None:
    """Pictures on streams of their own, one after the other without waiting in between."""
    inputs = [half.prepare(photo.cropped("square"), 518)[0] for photo in photos]
    expected = [launched(pixels) for pixels in inputs]
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found = []
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            found.append(half(inputs[number % 2]))
    torch.cuda.synchronize()
    for number, hidden in enumerate(found):
        assert torch.equal(hidden, expected[number % 2])


@pytest.mark.gpu
def test_gpu_memory_goes_with_the_graphs(photos) -> None:
    model = load_model("dinov2-small", "cuda", torch.float16)
    pixels, grid = model.prepare(photos[0], 518)
    model(pixels)
    model.graphs.clear()
    model(pixels[..., :504])  # cuBLAS's workspaces stay, once they are there
    model.graphs.clear()
    before = torch.cuda.memory_allocated()
    model(pixels)
    config, tokens = model.config, model.tokens(grid)
    kept = config.layers * tokens * (2 * 3 * config.dim + 4 * config.heads)
    # Besides what is kept: the pixels, and the tokens and hidden layer of one block.
    working = 2 * pixels.numel() + 2 * tokens * (8 * config.dim + 3 * config.mlp_dim) + 2**21
    assert kept <= torch.cuda.memory_allocated() - before <= kept + working
    model.graphs.clear()
    assert torch.cuda.memory_allocated() - before <= 2**16


@pytest.mark.gpu
def test_gpu_progress_and_stop(half, photos) -> None:
    class Stopped(Exception):
        pass

    steps: list[tuple[int, int]] = []

    def stop(done: int, of: int) -> None:
        steps.append((done, of))
        if done == 2:
            raise Stopped

    half.trace(photos[0], 224)
    with pytest.raises(Stopped):
        half.trace(photos[0], 224, progress=stop)
    assert steps == [(1, 12), (2, 12)]
    half.trace(photos[0], 224, progress=lambda done, of: steps.append((done, of)))
    assert steps[2:] == [(i, 12) for i in range(1, 13)]


@pytest.mark.gpu
def test_gpu_gradients_still_flow(photos) -> None:
    model = load_model("dinov2-small", "cuda", torch.float32)
    pixels, _ = model.prepare(photos[0], 56)
    model.norm.weight.requires_grad_(True)
    model(pixels).sum().backward()
    assert model.norm.weight.grad is not None
    assert not model.graphs.kept
