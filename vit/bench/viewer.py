"""One way to get all maps of one query in the last layer, timed in a process of its own.

    python -m vit.bench.viewer prepare FOLDER PHOTO     once: weights for the peer
    python -m vit.bench.viewer ours FOLDER PHOTO SIDE REPEATS

`python -m kernels.bench viewer` starts one process for each contestant and size and reads the line of
JSON that it prints. From the photo in memory to the maps on the CPU, each contestant does the same:
resize, run the model, read the class token's row of every head of the last layer.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from vit import MAPS, Photo, load_image, load_model
from vit.bench.peer import load_peer, save_for_peer
from vit.config import IMAGENET_MEAN, IMAGENET_STD
from vit.maps.survey import all_maps, survey


def pixels_of(photo: Photo, side: int, device: str, dtype: torch.dtype) -> Tensor:
    """The same input for the peers as our model makes for itself."""
    return photo.pixels(photo.grid(side), IMAGENET_MEAN, IMAGENET_STD, device).to(dtype)


View = Callable[[Photo, int], Tensor | None]  # -> [heads, rows, columns], or None without maps
WARM_UP_SIDE = 112
CLICKS = 25


def ours(folder: Path, device: str, dtype: torch.dtype) -> View:
    """The viewer of the app: the trace of every layer is kept, so that the next click is free."""
    model = load_model("dinov2-small", device, dtype)
    return lambda photo, side: MAPS["row"](model.trace(photo, side), -1, "class").cpu()


def ours_one_layer(folder: Path, device: str, dtype: torch.dtype) -> View:
    """The viewer of the command line: only the layer that is asked for is kept."""
    model = load_model("dinov2-small", device, dtype)
    last = model.config.layers - 1
    return lambda photo, side: MAPS["row"](model.trace(photo, side, only=last), -1, "class").cpu()


def ours_one_query(folder: Path, device: str, dtype: torch.dtype) -> View:
    """Every layer's maps of one query, read while the model runs; no layer is kept."""
    model = load_model("dinov2-small", device, dtype)
    return lambda photo, side: all_maps(model, photo, side, "class")[-1]


def transformers_eager(folder: Path, device: str, dtype: torch.dtype) -> View:
    """The way that users are told to take: eager attention, every matrix of every layer returned."""
    model = load_peer(folder, "eager", device, dtype)

    def view(photo: Photo, side: int) -> Tensor:
        grid = photo.grid(side)
        pixels = pixels_of(photo, side, device, dtype)
        with torch.inference_mode():
            matrices = model(pixels, output_attentions=True).attentions
        return matrices[-1][0, :, 0, 1:].unflatten(-1, (grid.rows, grid.columns)).float().cpu()

    return view


def transformers_sdpa(folder: Path, device: str, dtype: torch.dtype) -> View:
    """The fast way, which gives no maps at all: the price to match."""
    model = load_peer(folder, "sdpa", device, dtype)

    def view(photo: Photo, side: int) -> None:
        pixels = pixels_of(photo, side, device, dtype)
        with torch.inference_mode():
            model(pixels).last_hidden_state.sum().item()

    return view


CONTESTANTS = {
    "ours": ours,
    "ours-one-layer": ours_one_layer,
    "ours-one-query": ours_one_query,
    "transformers-eager": transformers_eager,
    "transformers-sdpa": transformers_sdpa,
}


def measure(name: str, folder: Path, photo: Photo, side: int, repeats: int) -> dict[str, object]:
    """Times in milliseconds and the peak in bytes, the process's own or the GPU allocator's."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float16 if device == "cuda" else torch.float32
    view = CONTESTANTS[name](folder, device, dtype)
    # On a GPU the first run of each size compiles and loads kernels; a CPU has nothing to compile.
    view(photo, side if device == "cuda" else WARM_UP_SIDE)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    times, maps = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        maps = view(photo, side)
        times.append(1e3 * (time.perf_counter() - start))
    grid = photo.grid(side)
    found: dict[str, object] = {
        "tokens": 1 + grid.patches,
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "time_ms": times,
        "peak_bytes": peak_bytes(device),
        "sample": None if maps is None else maps[:, :: grid.rows - 1, :: grid.columns - 1].tolist(),
    }
    if name == "ours":
        found |= click_times(photo, side, device, dtype)
    return found


def click_times(photo: Photo, side: int, device: str, dtype: torch.dtype) -> dict[str, float]:
    """What a click costs once the trace is there: one layer's row, and every layer's with its facts."""
    trace = load_model("dinov2-small", device, dtype).trace(photo, side)
    patches = [(i % trace.grid.rows, i % trace.grid.columns) for i in range(CLICKS)]

    def median_ms(read: Callable[[tuple[int, int]], object]) -> float:
        times = []
        for patch in patches:
            start = time.perf_counter()
            read(patch)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times[1:])

    return {
        "click_ms": median_ms(lambda patch: MAPS["row"](trace, -1, patch).cpu()),
        "survey_ms": median_ms(lambda patch: survey(trace, patch)),
    }


def peak_bytes(device: str) -> int:
    """The GPU allocator's peak since the warm-up, or the largest this process has ever been."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    import resource  # not on Windows, where this benchmark does not run

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main(arguments: list[str]) -> None:
    """Do what the command line says; the last line on stdout is the JSON."""
    name, folder, photo = arguments[0], Path(arguments[1]), load_image(arguments[2])
    if name == "prepare":
        save_for_peer(load_model("dinov2-small", "cpu", torch.float32), folder)
        return
    side, repeats = int(arguments[3]), int(arguments[4])
    print(json.dumps(measure(name, folder, photo, side, repeats)))


if __name__ == "__main__":
    main(sys.argv[1:])
