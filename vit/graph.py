"""One run of the model at one size as one CUDA graph: replayed whole, not launched kernel by kernel.

A small picture keeps a GPU busy for less time than Python needs to launch its hundred-odd kernels. A graph
holds them all, with fixed addresses for the pixels, for the weights and for what comes out, and starts them
at once. What a graph leaves is copied out before anyone sees it, so the next picture overwrites nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vit.block import layer_trace
from vit.trace import LayerTrace
from vit.watched import Watched

if TYPE_CHECKING:
    from vit.model import VisionTransformer

GRAPH_TOKENS = 6000
"""The largest picture that is replayed. Beyond it the GPU is busy for longer than Python launches."""

KEPT_GRAPHS = 3
"""How many sizes a model keeps graphs for; the one not used for longest goes first.

A graph of ViT-S in half precision holds 41 MB at 518 pixels and 167 MB at 1036: q, k and v of every layer, and
what one block works with. The trace that is copied out of it comes on top.
"""

GRAPHED = ("fa2", "fa3")
"""Implementations that are replayed. The others are here to compare, and run kernel by kernel."""

Key = tuple[int, int, str]  # height and width in pixels, implementation


def reason_against(model: VisionTransformer, pixels: Tensor, implementation: str) -> str | None:
    """None where this run is replayed from a graph, or the sentence saying why it is launched kernel by kernel."""
    if model.device.type != "cuda":
        return "A CPU launches no kernels, so there is nothing to replay."
    if not model.graphs.most:
        return "This model keeps no graphs."
    if len(pixels) != 1:
        return f"A graph holds one picture, not {len(pixels)}."
    grid = model.grid_of(pixels)
    if model.tokens(grid) > GRAPH_TOKENS:
        return (
            f"{model.tokens(grid)} tokens keep the GPU busy for longer than launching takes; "
            f"a graph holds {GRAPH_TOKENS}."
        )
    return reason_against_now(model, pixels) or reason_against_kernels(
        model.named(implementation, grid)
    )


def reason_against_now(model: VisionTransformer, pixels: Tensor) -> str | None:
    """What torch is doing around this run may forbid it."""
    if torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (pixels, *model.parameters())
    ):
        return "A graph keeps nothing for a backward pass; use torch.no_grad()."
    if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
        return "This run is part of someone else's graph already."
    return None


def reason_against_kernels(implementation: str) -> str | None:
    """Only our own kernels are known to launch the same work whatever the pixels hold."""
    if implementation in GRAPHED:
        return None
    return f"Only {' and '.join(GRAPHED)} are replayed from a graph, not {implementation}."


@dataclass(frozen=True)
class Captured:
    """A captured run: its graph, and the fixed places that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    pixels: Tensor  # [1, 3, height, width], in the model's dtype: what it reads
    hidden: Tensor  # [1, tokens, dim], and the rest what it writes
    qkv: Tensor  # [layers, 1, tokens, 3 * dim]
    log_sum_exp: Tensor  # [layers, 1, heads, tokens], float32
    positions: Tensor  # held, as the weights are: a graph must not read memory that was given back
    weights: Watched


class Graphs:
    """The graphs of one model, for the sizes seen last. Whoever holds the model owns them; `clear` frees them.

    Safe to call from several threads and streams: one picture at a time.
    """

    def __init__(self, most: int = KEPT_GRAPHS) -> None:
        self.most = most
        self.kept: OrderedDict[Key, Captured] = OrderedDict()
        self.lock = threading.Lock()
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.copied: torch.Event | None = None  # reached when the last picture was copied out

    def __reduce__(self) -> tuple[type[Graphs], tuple[int]]:
        """A copy of a model starts without graphs: they point at the weights of this one."""
        return Graphs, (self.most,)

    def clear(self) -> None:
        """Forget all graphs and give their memory back."""
        with self.lock:
            while self.kept:
                self.forget(next(iter(self.kept)))

    def forget(self, key: Key) -> None:
        """Drop one graph, once the GPU is done with it."""
        if self.copied is not None:
            self.copied.synchronize()
        del self.kept[key]

    def hidden(self, model: VisionTransformer, pixels: Tensor, implementation: str) -> Tensor:
        """The last hidden state [1, tokens, dim], in memory of its own."""
        with self.lock, torch.no_grad():
            (hidden,) = self.replay(
                model, pixels, implementation, lambda run: (run.hidden.clone(),)
            )
        return hidden

    def layers(
        self,
        model: VisionTransformer,
        pixels: Tensor,
        implementation: str,
        only: int | None = None,
    ) -> tuple[LayerTrace, ...]:
        """Every layer's trace, or `only` that one's, in memory of their own: one piece for all layers."""
        part = slice(None) if only is None else slice(only, only + 1)
        with self.lock, torch.no_grad():
            qkv, log_sum_exp = self.replay(
                model,
                pixels,
                implementation,
                lambda run: (run.qkv[part].clone(), run.log_sum_exp[part].clone()),
            )
        heads = model.config.heads
        return tuple(
            layer_trace(packed, heads, sums) for packed, sums in zip(qkv, log_sum_exp, strict=True)
        )

    def replay(self, model, pixels, implementation, results) -> tuple[Tensor, ...]:
        """Run the graph of this size on these pixels, and take `results(captured)` out of it.

        Whether the weights are still those of the graph is looked at while the GPU works.
        """
        grid = model.grid_of(pixels)
        key = (*pixels.shape[-2:], model.named(implementation, grid))
        stream = torch.cuda.current_stream(model.device)
        while True:
            # The places of a graph are inference tensors, whoever comes first; what is copied out of them is not.
            with torch.inference_mode():
                run = self.kept.get(key)
                if run is None:
                    self.kept[key] = run = self.capture(model, pixels, key[-1])
                    while len(self.kept) > self.most:
                        self.forget(next(iter(self.kept)))
                self.kept.move_to_end(key)
                if self.copied is not None:
                    stream.wait_event(self.copied)
                run.pixels.copy_(pixels)
                run.graph.replay()
            found = results(run)
            self.copied = stream.record_event()
            if run.weights.unchanged():
                return found
            self.forget(key)

    def capture(self, model: VisionTransformer, pixels: Tensor, implementation: str) -> Captured:
        """Record one run of this size."""
        config, grid = model.config, model.grid_of(pixels)
        static = pixels.to(model.dtype, copy=True)
        qkv = model.empty_qkv(static)
        sums_shape = (config.layers, 1, config.heads, model.tokens(grid))
        log_sum_exp = static.new_empty(sums_shape, dtype=torch.float32)
        positions = model.embedding.positions(grid.rows, grid.columns)
        weights = Watched(model)

        def run() -> Tensor:
            hidden, sums = model.run_into(static, positions, implementation, qkv)
            torch.stack(sums, out=log_sum_exp)
            return hidden

        graph, hidden = record(run, model.device, self.streams)
        return Captured(graph, static, hidden, qkv, log_sum_exp, positions, weights)


def record(
    run: Callable[[], Tensor], device: torch.device, streams: dict[torch.device, torch.cuda.Stream]
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A graph of one run, and where it leaves the result. It runs once before: that compiles and loads.

    All graphs of a device are captured on one stream, so that they share cuBLAS's workspace.
    """
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    stream, now = streams[device], torch.cuda.current_stream(device)
    stream.wait_stream(now)
    with torch.cuda.stream(stream):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        result = run()
    now.wait_stream(stream)
    return graph, result
