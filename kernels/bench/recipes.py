"""RECIPES: what is swept and who takes part. Nothing here runs anything."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernels.bench.targets import (
    BACKWARD_TARGETS,
    FORWARD_TARGETS,
    HOPPER_BACKWARD_TARGETS,
    HOPPER_TARGETS,
    LONG_64,
    LONG_128,
    REBUILD_TARGETS,
    KernelTarget,
    ViewerTarget,
    square,
)
from kernels.problem import Problem
from kernels.traffic.ledger import Direction


@dataclass(frozen=True)
class ViewerRecipe:
    """Contestants that run side by side, each in a fresh process, at each size.

    `worker` is a module of this repository, started as a program, so that no process holds what another
    needs: `python -m worker CONTESTANT FOLDER PHOTO SIZE REPEATS` prints one line of JSON.
    """

    name: str
    about: str
    worker: str
    contestants: tuple[str, ...]
    photo: str
    sizes_on_cpu: tuple[int, ...]
    sizes_on_gpu: tuple[int, ...]
    targets: tuple[ViewerTarget, ...]


@dataclass(frozen=True)
class KernelRecipe:
    """Implementations side by side in one process, in each direction, on each problem.

    `contestants` None means every one in the registry, the peers among them when they are asked for.
    `parts` take part besides: what is rebuilt of P, see `contestants.PARTS`. `measures` is "time", or
    "memory", where one launch is watched and nothing is timed; `linear` names who must then grow linearly.
    """

    name: str
    about: str
    on_gpu: tuple[Problem, ...]
    on_cpu: tuple[Problem, ...] = ()
    directions: tuple[str, ...] = ("forward",)
    contestants: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ()
    measures: str = "time"
    targets: tuple[KernelTarget, ...] = ()
    linear: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrafficRecipe:
    """Bytes of implementations on each problem: by formula, counted without a GPU, measured by one's counters.

    `gpu` is whose rows of the tile tables formula and count take. On the problems in `hundredfold` the naive
    kernels must move more than a hundred times the DRAM bytes of fa2.
    """

    name: str
    about: str
    problems: tuple[Problem, ...]
    contestants: tuple[str, ...]
    ours: tuple[str, ...]  # those that have a formula
    directions: tuple[Direction, ...] = ("forward",)
    gpu: str = "sm_90"
    hundredfold: tuple[Problem, ...] = ()


Recipe = ViewerRecipe | KernelRecipe | TrafficRecipe


def in_float32(*problems: Problem) -> tuple[Problem, ...]:
    """The same for the CPU."""
    return tuple(replace(problem, dtype="float32") for problem in problems)


def with_causal(*problems: Problem) -> tuple[Problem, ...]:
    """Each problem full, then causal."""
    return tuple(replace(p, causal=causal) for p in problems for causal in (False, True))


ALL_RECIPES: tuple[Recipe, ...] = (
    ViewerRecipe(
        name="viewer",
        about="Trace a picture and read all maps of the last layer for one query.",
        worker="vit.bench.viewer",
        contestants=(
            "ours",
            "ours-one-layer",
            "ours-one-query",
            "transformers-sdpa",
            "transformers-eager",
        ),
        photo="app/samples/astronaut.jpg",
        sizes_on_cpu=(224, 518, 1036),
        sizes_on_gpu=(224, 518, 1036, 2072),
        targets=(
            ViewerTarget("time_ms", "ours", "transformers-sdpa", 1.05),
            ViewerTarget("peak_mb", "ours", "transformers-sdpa", 1.10),
            ViewerTarget("time_ms", "ours", "transformers-eager", 1 / 3, sizes=(1036,)),
            ViewerTarget("peak_mb", "ours", "transformers-eager", 1 / 20, sizes=(1036,)),
            ViewerTarget("peak_mb", "ours-one-query", "transformers-sdpa", 1.10, "cuda"),
        ),
    ),
    KernelRecipe(
        name="speed_vs_tokens",
        about="Forward pass, from a picture of 224 pixels to 21905 tokens.",
        on_gpu=(
            square(1, 12, 197, 64),
            square(64, 12, 197, 64),
            square(1, 6, 1370, 64),
            square(16, 6, 1370, 64),
            square(1, 6, 5477, 64),
            square(1, 6, 21905, 64),
            square(1, 16, 16384, 64),
            square(1, 16, 16384, 128),
            square(4, 16, 4096, 128),
        ),
        on_cpu=in_float32(square(1, 12, 197, 64), square(1, 6, 1370, 64)),
        targets=FORWARD_TARGETS,
    ),
    KernelRecipe(
        name="backward_vs_tokens",
        about="Backward pass without the forward pass before it, full and causal.",
        on_gpu=with_causal(
            square(16, 6, 1370, 64),
            square(1, 6, 5477, 64),
            square(1, 6, 21905, 64),
            square(1, 16, 16384, 64),
            square(1, 16, 16384, 128),
            square(4, 16, 4096, 128),
        ),
        on_cpu=in_float32(*with_causal(square(1, 12, 197, 64), square(1, 2, 1370, 64))),
        directions=("backward",),
        targets=BACKWARD_TARGETS,
    ),
    KernelRecipe(
        name="hopper",
        about="Forward pass on Hopper: fa3 beside the fastest of the others.",
        on_gpu=(
            square(1, 12, 197, 64),
            square(64, 12, 197, 64),
            square(64, 12, 257, 64),
            square(1, 6, 577, 64),
            square(1, 12, 577, 64),
            square(1, 6, 1025, 64),
            square(1, 6, 1370, 64),
            square(16, 6, 1370, 64),
            square(1, 6, 5477, 64),
            square(1, 6, 21905, 64),
            *with_causal(LONG_64, LONG_128),
            square(4, 16, 4096, 128),
        ),
        contestants=("fa2", "fa3", "sdpa-cudnn", "flash-attn-4"),
        targets=HOPPER_TARGETS,
    ),
    KernelRecipe(
        name="hopper_backward",
        about="Backward pass on Hopper: fa3 beside the fastest of the others.",
        on_gpu=with_causal(square(16, 6, 1370, 64), LONG_64, LONG_128),
        directions=("backward",),
        contestants=("fa2", "fa3", "sdpa-cudnn", "flash-attn-4"),
        targets=HOPPER_BACKWARD_TARGETS,
    ),
    KernelRecipe(
        name="memory_vs_tokens",
        about="Peak memory of one head, forward alone and with the backward pass, up to a million tokens.",
        on_gpu=tuple(square(1, 1, 4**power, 64) for power in range(5, 11)),
        directions=("forward", "forward+backward"),
        measures="memory",
        linear=("fa2",),
    ),
    KernelRecipe(
        name="head_dims",
        about="Forward pass over widths of a head, powers of two and others.",
        on_gpu=tuple(
            square(4, 16, 2048, width) for width in (32, 40, 59, 64, 72, 80, 96, 128, 192, 256)
        ),
        on_cpu=in_float32(*(square(1, 2, 256, width) for width in (40, 64, 128))),
    ),
    KernelRecipe(
        name="batch",
        about="Forward pass over batch sizes, at 224 and at 518 pixels.",
        on_gpu=tuple(
            square(batch, heads, tokens, 64)
            for heads, tokens in ((12, 197), (6, 1370))
            for batch in (1, 4, 16, 64)
        ),
        on_cpu=in_float32(square(1, 12, 197, 64), square(4, 12, 197, 64)),
    ),
    KernelRecipe(
        name="rebuild",
        about="One row, one column and one product with P for all heads, beside one forward pass.",
        on_gpu=tuple(square(1, 6, tokens, 64) for tokens in (197, 1370, 5477, 21905)),
        on_cpu=in_float32(*(square(1, 6, tokens, 64) for tokens in (197, 1370))),
        contestants=("torch-cpu-flash", "fa2"),
        parts=("one-row", "one-column", "product"),
        targets=REBUILD_TARGETS,
    ),
    KernelRecipe(
        name="picture_sizes",
        about="Time and peak memory of one layer's attention at the sizes of a picture, from 224 to 3108 pixels.",
        on_gpu=tuple(square(1, 6, tokens, 64) for tokens in (257, 1370, 5477, 12101, 21905, 49285)),
        on_cpu=in_float32(*(square(1, 6, tokens, 64) for tokens in (257, 1370))),
        directions=("forward", "forward+backward"),
    ),
    TrafficRecipe(
        name="traffic",
        about="Bytes of one layer's attention, by formula, counted, and measured by the GPU's own counters.",
        problems=(
            square(1, 6, 257, 64),
            square(1, 6, 1370, 64),
            square(16, 6, 1370, 64),
            square(1, 6, 5477, 64),
            square(1, 6, 21905, 64),
        ),
        contestants=("eager", "naive", "fa1", "fa2", "fa3", "sdpa-flash", "sdpa-cudnn"),
        ours=("naive", "fa1", "fa2", "fa3"),
        hundredfold=(square(1, 6, 5477, 64),),
    ),
)
RECIPES = {recipe.name: recipe for recipe in ALL_RECIPES}
