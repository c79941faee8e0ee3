"""RECIPES: what is swept, who takes part, and what was asked of us."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """ours <= factor * peer's, in one column, on one kind of device; `sizes` None means at each."""

    column: str
    ours: str
    peer: str
    factor: float
    device: str = "cpu"
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Recipe:
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
    targets: tuple[Target, ...]


RECIPES = {
    "viewer": Recipe(
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
            Target("time_ms", "ours", "transformers-sdpa", 1.05),
            Target("peak_mb", "ours", "transformers-sdpa", 1.10),
            Target("time_ms", "ours", "transformers-eager", 1 / 3, sizes=(1036,)),
            Target("peak_mb", "ours", "transformers-eager", 1 / 20, sizes=(1036,)),
            Target("peak_mb", "ours-one-query", "transformers-sdpa", 1.10, "cuda"),
        ),
    ),
}
