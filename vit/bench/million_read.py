"""Every layer of a picture read as it passes, stage by stage on the clock, with one layer in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels import attention_product
from vit.bench.million_proof import Errors, errors_of
from vit.grid import PatchGrid
from vit.maps.column import column_tokens
from vit.maps.row import row_tokens
from vit.model import VisionTransformer
from vit.trace import LayerTrace, Query, Trace

STRIP_ROWS = 1001
"""Rows of pixels that are prepared at a time."""


@dataclass
class Clock:
    """Seconds and peak bytes of each stage, on the device's own clock."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def add(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What happens inside counts for this stage, along with what already did."""
        gpu = self.device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        start = self.now()
        yield
        self.add(name, self.now() - start)
        if gpu:
            peak = torch.cuda.max_memory_allocated(self.device)
            self.peaks[name] = max(peak, self.peaks.get(name, 0))


@dataclass(frozen=True)
class Maps:
    """All maps of one query, float32 on the CPU [layers, heads, tokens], and how far samples of them are off."""

    rows: Tensor
    columns: Tensor
    received: Tensor
    errors: Errors
    trace: Trace | None  # where it was asked for


def pixels_of(picture: Tensor, model: VisionTransformer) -> Tensor:
    """uint8 [height, width, 3] as the model's input, as `Photo.pixels` has it, but strip by strip.

    Nothing is resized: each side is a multiple of the patch.
    """
    height, width, _ = picture.shape
    mean, std = (
        torch.tensor(values, device=model.device).view(3, 1, 1)
        for values in (model.config.mean, model.config.std)
    )
    pixels = torch.empty(1, 3, height, width, dtype=model.dtype, device=model.device)
    for first in range(0, height, STRIP_ROWS):
        strip = picture[first : first + STRIP_ROWS].to(model.device).permute(2, 0, 1).float()
        pixels[0, :, first : first + STRIP_ROWS] = strip.div_(255).sub_(mean).div_(std)
    return pixels


def grid_over(height: int, width: int, patch: int) -> PatchGrid:
    """The grid over a picture that is not resized."""
    return PatchGrid(height // patch, width // patch, patch, (0.0, 0.0, width, height))


def read_all(
    model: VisionTransformer,
    picture: Tensor,
    query: Query,
    clock: Clock,
    keep: bool = False,
    implementation: str = "auto",
) -> Maps:
    """Run the model on uint8 [height, width, 3] and read every layer as it passes."""
    with clock.stage("pixels"):
        pixels = pixels_of(picture, model)
    grid = grid_over(pixels.shape[-2], pixels.shape[-1], model.config.patch)
    name = model.named(implementation, grid)
    layers = model.layers(pixels, name)
    del pixels
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    errors, kept = Errors(), list[LayerTrace]()
    with timed_attention(model, clock):
        for _ in range(model.config.layers):
            with clock.stage("forward"):
                layer = next(layers)
            single = model.trace_of((layer,), grid, name)
            found.append(read_layer(single, query, clock))
            with clock.stage("check"):
                errors = errors.worse(errors_of(single, query, *found[-1]))
            if keep:
                kept.append(layer)
            del layer, single
        with clock.stage("forward"):
            next(layers, None)  # the last layer's second half
    clock.add("other", clock.seconds["forward"] - clock.seconds["attention"])
    trace = model.trace_of(tuple(kept), grid, name) if keep else None
    rows, columns, received = (torch.stack(part) for part in zip(*found, strict=True))
    return Maps(rows, columns, received, errors, trace)


def read_layer(single: Trace, query: Query, clock: Clock) -> tuple[Tensor, Tensor, Tensor]:
    """The query's row and column, and what every token receives, float32 on the CPU [heads, tokens].

    Rows and columns are brought to the CPU while the GPU works on what is received, and count for that.
    """
    with clock.stage("rows"):
        rows = row_tokens(single, 0, query)
    with clock.stage("columns"):
        columns = column_tokens(single, 0, query)
    with clock.stage("received"):
        received, (rows, columns) = meanwhile(lambda: received_of(single), rows, columns)
        received = received.cpu()
    return rows, columns, received


def received_of(single: Trace) -> Tensor:
    """What every token of a layer receives, [heads, tokens]."""
    part = single.layers[0]
    return attention_product(None, part.q, part.k, part.log_sum_exp, single.scale)[0]


def meanwhile(work: Callable[[], Tensor], *found: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What `work` gives, still on its way on the GPU, and `found` on the CPU, brought there meanwhile.

    A copy to new memory of the CPU takes 15 ms for a million tokens: the machine makes its pages first.
    """
    if not torch.cuda.is_available():
        return work(), [part.cpu() for part in found]
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())  # for what was found, not for `work`
    result = work()
    with torch.cuda.stream(beside):
        return result, [part.cpu() for part in found]


@contextmanager
def timed_attention(model: VisionTransformer, clock: Clock) -> Iterator[None]:
    """While it lasts, the time from q, k and v to attention's output is "attention"."""
    started: list[float] = []

    def begin(*_: object) -> None:
        started.append(clock.now())

    def end(*_: object) -> None:
        clock.add("attention", clock.now() - started.pop())

    hooks = [block.attention.qkv.register_forward_hook(begin) for block in model.stack]
    hooks += [block.attention.register_forward_hook(end) for block in model.stack]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
