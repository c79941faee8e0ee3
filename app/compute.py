"""The only cached calls: load a model, open a picture, trace it, read one query's maps.

All visitors share one `Shared`. Whatever is kept in it is bounded in bytes, and a picture can only
be reached by a sample's name or by an upload's random one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import streamlit as st
import torch

from app import samples
from app.jobs import Jobs
from app.line import Line
from app.memory import Forecast, available_bytes, forecast, in_words, is_replayed, problem_of
from app.state import State
from app.state_tiles import Tiles
from app.store import ByteStore
from app.text import en
from app.trouble import TooLarge, Trouble, is_out_of_memory, release_memory
from app.uploads import Uploads, is_upload, receive_in_memory
from app.walks import Walked
from app.walks import walked as walk_head
from kernels import Problem, choose, self_test
from kernels.selftest import SelfTest
from vit.config import PRESETS
from vit.image import MAX_FILE_BYTES, Photo, load_image
from vit.maps.proof import Proof, proof
from vit.maps.survey import Direction, Survey, survey
from vit.model import VisionTransformer
from vit.trace import Query, Trace
from vit.weights import load_model

T = TypeVar("T")
Tell = Callable[[float, str], None]
"""Called with how far the work is, 0 to 1, and a sentence. It may raise to stop the work."""

TRACE_SHARE = 0.3
"""Part of the memory free at the start that kept traces may fill."""
PICTURE_LIMIT_BYTES = 512 * 2**20
SCREEN_LIMIT_BYTES = 64 * 2**20
SURVEY_LIMIT_BYTES = 128 * 2**20
WALK_LIMIT_BYTES = 128 * 2**20


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Shared:
    """What all visitors of this process share, and the one line in front of the model."""

    def __init__(self) -> None:
        free = available_bytes(device())
        self.line = Line()
        self.jobs = Jobs(self.line.stirred)
        self.models: dict[str, VisionTransformer] = {}
        self.tested: SelfTest | None = None
        self.uploads = Uploads()
        receive_in_memory(MAX_FILE_BYTES)
        self.photos: ByteStore[Photo] = ByteStore(PICTURE_LIMIT_BYTES)
        self.screens: ByteStore[bytes] = ByteStore(SCREEN_LIMIT_BYTES)
        self.traces: ByteStore[Trace] = ByteStore(int(TRACE_SHARE * free))
        self.surveys: ByteStore[Survey] = ByteStore(SURVEY_LIMIT_BYTES)
        self.walks: ByteStore[Walked] = ByteStore(WALK_LIMIT_BYTES)
        self.seconds: dict[tuple[str, int], float] = {}


@st.cache_resource(show_spinner=False)
def shared() -> Shared:
    return Shared()


def photo(name: str, square: bool = False) -> Photo:
    """The picture of a sample or of an upload, decoded once.

    Raises:
        Trouble: there is no such sample, or the upload is forgotten.
        ImageError: the file is no picture that can be shown.
    """
    all_visitors = shared()
    key = (name, square)
    found = all_visitors.photos.get(key)
    if found is None:
        found = load_image(file_of(name), crop="square" if square else None)
        width, height = found.picture.size
        all_visitors.photos.put(key, found, 3 * width * height)
    return found


def file_of(name: str) -> bytes:
    """The file of a sample or of an upload."""
    if is_upload(name):
        content = shared().uploads.find(name)
        if content is None:
            raise Trouble(en.PICTURE["forgotten"])
        return content
    if name not in samples.SAMPLES:
        raise Trouble(en.PICTURE["unknown"])
    return samples.SAMPLES[name].path.read_bytes()


def screen_jpeg(shown: Photo) -> bytes:
    """The whole upright picture as the browser gets it, encoded once."""
    store = shared().screens
    found = store.get(shown.digest)
    if found is None:
        found = shown.jpeg()
        store.put(shown.digest, found, len(found))
    return found


def thumbnail(name: str, longest: int) -> bytes:
    """A small JPEG of a picture, for the line of choices."""
    store, key = shared().screens, (name, longest)
    found = store.get(key)
    if found is None:
        found = photo(name).jpeg(longest)
        store.put(key, found, len(found))
    return found


def model(name: str, tell: Tell) -> VisionTransformer:
    """The model, loaded by the first visitor that needs it.

    Raises:
        WeightsError: the weights are missing or damaged.
    """
    all_visitors = shared()
    if name not in all_visitors.models:
        with all_visitors.line.turn(lambda ahead: tell(0.0, place_in_line(ahead))):
            if name not in all_visitors.models:
                all_visitors.models[name] = load_model(name, progress=tell)
    return all_visitors.models[name]


def tested(tell: Tell) -> SelfTest:
    """Whether this machine's kernels tell the truth; asked once per process."""
    all_visitors = shared()
    if all_visitors.tested is None:
        with all_visitors.line.turn(lambda ahead: tell(0.0, place_in_line(ahead))):
            if all_visitors.tested is None:
                tell(0.0, en.WORK["self_test"])
                all_visitors.tested = self_test()
    return all_visitors.tested


@dataclass(frozen=True)
class Size:
    """One choice of size for the picture at hand."""

    side: int
    forecast: Forecast
    refusal: str | None  # the sentence saying why it cannot be had here
    seconds: float | None  # measured here before, if it was


def size(shown: Photo, model_name: str, side: int) -> Size:
    """What this size needs, by formula, and whether it can be had on this machine now."""
    all_visitors = shared()
    config = PRESETS[model_name]
    grid = shown.grid(side, config.patch)
    replayed = is_replayed(problem_of(config, grid, number_bytes()), device())
    need = forecast(config, grid, number_bytes(), replayed)
    free = available_bytes(device())
    refusal = None
    # What other traces hold can be given back, so it counts as free.
    if need.ours > free + all_visitors.traces.nbytes:
        refusal = en.SIZE["refused"].format(
            side=side, need=in_words(need.ours), free=in_words(free + all_visitors.traces.nbytes)
        )
    elif need.kept > all_visitors.traces.limit:
        refusal = en.SIZE["not_kept"].format(
            side=side, need=in_words(need.kept), limit=in_words(all_visitors.traces.limit)
        )
    return Size(side, need, refusal, all_visitors.seconds.get((model_name, need.tokens)))


def number_bytes() -> int:
    """Bytes of one number in the model: half precision on a GPU, float32 on a CPU."""
    return 2 if device().type == "cuda" else 4


def problem(state: State) -> Problem:
    """One layer's attention of the picture on the screen, as the model sets it on this device."""
    config = PRESETS[state.model]
    grid = photo(state.picture, state.square).grid(state.side, config.patch)
    return problem_of(config, grid, number_bytes())


def trace(state: State, tell: Tell) -> Trace:
    """The picture's way through the model; kept, so that a click does not run the model again.

    Raises:
        Trouble, ImageError, WeightsError: with the sentence for the screen.
    """
    all_visitors = shared()
    shown = photo(state.picture, state.square)
    key = (shown.digest, shown.crop, state.side, state.model, "auto")
    found = all_visitors.traces.get(key)
    if found is not None:
        return found
    runner = model(state.model, tell)
    with all_visitors.line.turn(lambda ahead: tell(0.0, place_in_line(ahead))):
        found = all_visitors.traces.get(key)  # whoever was ahead may have wanted the same
        if found is None:
            found = run(runner, shown, state, tell)
            all_visitors.traces.put(key, found, found.nbytes)
    return found


def run(runner: VisionTransformer, shown: Photo, state: State, tell: Tell) -> Trace:
    """One run of the model, told layer by layer. The caller holds the line."""
    wanted = size(shown, state.model, state.side)
    if wanted.refusal is not None:
        raise TooLarge(wanted.refusal)
    make_room(wanted.forecast)
    grid = shown.grid(state.side, runner.config.patch)
    name = choose(runner.problem(grid), runner.device)
    count = runner.config.layers
    tell(0.0, en.WORK["layer"].format(done=0, count=count, name=name))

    def after_layer(done: int, of: int) -> None:
        tell(done / of, en.WORK["layer"].format(done=done, count=of, name=name))

    start, found = time.perf_counter(), None
    try:
        found = runner.trace(shown, state.side, name, after_layer)
    except (MemoryError, RuntimeError) as fault:
        if not is_out_of_memory(fault):
            raise
    if found is None:  # outside the except block, where the traceback no longer holds the tensors
        release_memory()
        raise TooLarge(en.TROUBLE["out_of_memory"])
    shared().seconds[state.model, found.tokens] = time.perf_counter() - start
    return found


def make_room(need: Forecast) -> None:
    """Forget old traces until this one fits, both in our own limit and in the machine."""
    traces = shared().traces
    while traces.nbytes + need.kept > traces.limit and traces.forget_oldest():
        pass
    while available_bytes(device()) < need.ours:
        if not traces.forget_oldest():
            return
        release_memory()


def maps(state: State, traced: Trace, query: Query, direction: Direction) -> Survey:
    """All layers and heads for one query; what a click costs."""
    store = shared().surveys
    shown = photo(state.picture, state.square)
    key = (shown.digest, shown.crop, state.side, state.model, query, direction)
    found = store.get(key)
    if found is None:
        found = alone_on_gpu(lambda: survey(traced, query, direction))
        store.put(key, found, 4 * found.values.numel())
    return found


def evidence(traced: Trace, layer: int, query: Query) -> Proof:
    """How far the rebuilt rows are from float64, measured now."""
    return alone_on_gpu(lambda: proof(traced, layer, query))


def walked(state: State, traced: Trace, tiles: Tiles, query_tile: int) -> Walked:
    """One query tile of the head on the screen; kept, so that only a changed choice runs the kernel.

    Raises:
        TraceError: the walk cannot be taken, in one sentence.
    """
    store, shown = shared().walks, photo(state.picture, state.square)
    one = replace(tiles, query_tile=query_tile, row=None, step=0)
    key = (shown.digest, shown.crop, state.side, state.model, state.layer, state.head, one)
    found = store.get(key)
    if found is None:
        found = alone_on_gpu(lambda: walk_head(traced, state.layer, state.head, one, query_tile))
        store.put(key, found, found.nbytes)
    return found


def alone_on_gpu(work: Callable[[], T]) -> T:
    """One visitor at a time on a GPU; on a CPU a click need not wait for others' pictures."""
    line = shared().line
    with line.turn() if device().type == "cuda" else line.beside():
        return work()


def place_in_line(ahead: int) -> str:
    return en.WORK["one_ahead"] if ahead == 1 else en.WORK["ahead"].format(ahead=ahead)
