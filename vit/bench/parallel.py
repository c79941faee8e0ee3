"""A picture on one GPU and on all of them, and every map of a query from both.

    torchrun --nproc-per-node 2 -m vit.bench.parallel --side 14014 [--layers 6] [--out FILE]

Every rank makes the same picture. Layer by layer, rank 0 runs the model on all of it while the others wait,
then all run it on their shares. A layer is read as it passes: the query's row and column in every head, and
what every token receives. The maps of both are compared, rows of the split run are held against float64, a
line is printed and a row is recorded.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from kernels.bench.record import (
    RESULTS,
    BenchError,
    Row,
    append,
    machine,
    say,
    significant,
)
from kernels.parallel import LostRank, gathered
from vit import load_image, load_model
from vit.bench.million import PICTURES, SAMPLES
from vit.bench.million_read import meanwhile, pixels_of, received_of
from vit.bench.parallel_proof import Maps, difference, float64_error, now, passing_s, slowest
from vit.grid import PatchGrid
from vit.image.mosaic import mosaic
from vit.maps.column import column_tokens
from vit.maps.row import row_tokens
from vit.model import VisionTransformer
from vit.parallel import SplitTrace, named, rows_of, shards_of, split_layers
from vit.parallel_maps import PARTS, column_part, received_part, row_part
from vit.trace import LayerTrace

QUERY = "class"
MEETING_LIMIT = datetime.timedelta(minutes=10)
LARGEST_FLOAT64_ERROR = 1e-3
LARGEST_DIFFERENCE = 0.1
"""Of the largest weight of the same map. Two runs in half precision round differently in every layer."""


@dataclass
class Run:
    """One way through the model: its layers, how to read one, and what that took so far."""

    layers: Iterator[LayerTrace]
    read: Callable[[LayerTrace], Maps]
    device: torch.device
    trace_s: float = 0.0
    maps_s: float = 0.0
    peak_bytes: int = 0  # with what the other run holds between its layers
    maps: list[Maps] = field(default_factory=list)
    last: LayerTrace | None = None

    @property
    def total_s(self) -> float:
        return self.trace_s + self.maps_s

    def step(self) -> None:
        """Take the next layer, and read it."""
        self.last = None  # one layer in memory at a time
        gpu = self.device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        start = now(self.device)
        layer = next(self.layers)
        passed = now(self.device)
        self.maps.append(self.read(layer))
        self.trace_s += passed - start
        self.maps_s += now(self.device) - passed
        if gpu:
            self.peak_bytes = max(self.peak_bytes, torch.cuda.max_memory_allocated(self.device))
        self.last = layer


def run_on_one(model: VisionTransformer, picture: Tensor, grid: PatchGrid) -> Run:
    """The whole picture on this rank's device."""
    name = model.choose_implementation(grid)

    def read(layer: LayerTrace) -> Maps:
        single = model.trace_of((layer,), grid, name)
        found = row_tokens(single, 0, QUERY), column_tokens(single, 0, QUERY)
        received, found = meanwhile(lambda: received_of(single), *found)
        return [*found, received.cpu()]

    return Run(model.layers(pixels_of(picture, model), name), read, model.device)


def run_split(model: VisionTransformer, picture: Tensor, grid: PatchGrid) -> Run:
    """This rank's share of the same; the maps come together on rank 0."""
    shards = shards_of(model, grid)
    name, rows = named("auto", model, shards), rows_of(model, grid, shards)
    strip = picture[rows.start * grid.patch : rows.stop * grid.patch]

    def read(layer: LayerTrace) -> Maps:
        single = SplitTrace(model.trace_of((layer,), grid, name), shards, None)
        token = single.token(QUERY)
        found = [gathered(part(single, 0, token), 1) for part in (row_part, column_part)]
        there = [part for part in found if part is not None]
        received, there = meanwhile(lambda: received_part(single, 0, token), *there)
        received = gathered(received, 1)
        return [None, None, None] if received is None else [*there, received.cpu()]

    layers = split_layers(model, pixels_of(strip, model), grid, shards, None, name)
    return Run(layers, read, model.device)


def both(
    model: VisionTransformer,
    picture: Tensor,
    grid: PatchGrid,
    count: int,
    limit_s: float = math.inf,
) -> tuple[Run | None, Run]:
    """`count` layers, or as many as are done in time, by turns; on one only where this is rank 0."""
    one = run_on_one(model, picture, grid) if dist.get_rank() == 0 else None
    split = run_split(model, picture, grid)
    start = time.perf_counter()
    for number in range(count):
        if one is not None:
            one.step()
        dist.barrier()
        split.step()
        if one is not None:
            one.last = None
            say(
                f"layer {number}: {one.trace_s:.3f} s on one, {split.trace_s:.3f} s split; "
                f"with maps {one.total_s:.3f} s and {split.total_s:.3f} s"
            )
        if slowest(time.perf_counter() - start) > limit_s:
            break
    return one, split


# --- one size ---------------------------------------------------------------------------------------


def measure(
    model: VisionTransformer, side: int, count: int, limit_s: float = math.inf
) -> Row | None:
    """Both runs at this size, after one layer of each to warm up; the row of figures, on rank 0."""
    patch = model.config.patch
    if side < patch or side % patch:
        raise BenchError(f"The side must be a multiple of the patch, {patch} px; {side} is not.")
    grid = PatchGrid(side // patch, side // patch, patch, (0.0, 0.0, float(side), float(side)))
    picture = mosaic(side, [load_image(SAMPLES / name) for name in PICTURES], model.device)
    both(model, picture, grid, 1)
    one, split = both(model, picture, grid, count, limit_s)
    assert split.last is not None
    split.trace_s, split.maps_s = slowest(split.trace_s), slowest(split.maps_s)
    split.peak_bytes = int(slowest(split.peak_bytes))
    error, pass_s = float64_error(split.last, model, grid), passing_s(split.last, model, grid)
    if one is None:
        return None
    row = figures(model, grid, len(one.maps)) | times(one, split)
    row |= {"pass_s": significant(pass_s), "float64_error": f"{error:.1e}"}
    apart = difference(one.maps, split.maps)
    return row | {f"{kind}_difference": f"{value:.1e}" for kind, value in apart.items()}


def times(one: Run, split: Run) -> Row:
    """Seconds, ratios and peaks of both."""
    return {
        "trace_one_s": significant(one.trace_s),
        "trace_split_s": significant(split.trace_s),
        "trace_ratio": significant(one.trace_s / split.trace_s, 4),
        "all_one_s": significant(one.total_s),
        "all_split_s": significant(split.total_s),
        "all_ratio": significant(one.total_s / split.total_s, 4),
        "peak_one_gb": round(one.peak_bytes / 1e9, 2) or "",
        "peak_split_gb": round(split.peak_bytes / 1e9, 2) or "",
    }


def reason_against(row: Row) -> str | None:
    """None, or why these figures are not recorded."""
    apart = [float(str(row[f"{kind}_difference"])) for kind in PARTS]
    error = float(str(row["float64_error"]))
    # So written that a NaN is found wanting.
    if error <= LARGEST_FLOAT64_ERROR and all(share <= LARGEST_DIFFERENCE for share in apart):
        return None
    return (
        f"The split run is wrong, nothing is recorded: rows {error} from float64, "
        f"maps {apart} from one rank's, as shares of the largest weight."
    )


def figures(model: VisionTransformer, grid: PatchGrid, count: int) -> Row:
    """What was measured."""
    shards = shards_of(model, grid)
    return {
        "recipe": "parallel",
        "model": model.name,
        "side": grid.rows * grid.patch,
        "tokens": sum(shards.keys),
        "layers": count,
        "heads": model.config.heads,
        "ranks": shards.world,
        "dtype": str(model.dtype).removeprefix("torch."),
        "implementation": named("auto", model, shards),
    }


def sentence(row: Row) -> str:
    """The line that is printed."""
    peaks = f"; {row['peak_one_gb']} GB on one, {row['peak_split_gb']} GB on each"
    return (
        f"{row['side']} px, {row['tokens']:,} tokens, {row['layers']} layers, {row['implementation']}, "
        f"{row['dtype']}: {row['trace_one_s']} s on one, {row['trace_split_s']} s on {row['ranks']}, "
        f"{row['trace_ratio']} x; with all maps {row['all_one_s']} s and {row['all_split_s']} s, "
        f"{row['all_ratio']} x; rows {row['float64_error']} from float64; rows, columns and received "
        f"{row['row_difference']}, {row['column_difference']}, {row['received_difference']} from one's; "
        f"K and V pass on in {row['pass_s']} s{peaks if row['peak_one_gb'] else ''}"
    )


def parser() -> argparse.ArgumentParser:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="vit.bench.parallel", description=lines[0])
    add = parser.add_argument
    add("--side", type=int, nargs="+", default=[14014], help="pixels, multiples of 14")
    add("--layers", type=int, help="the first layers alone; default: all")
    add("--limit-s", type=float, default=math.inf, help="begin no layer after so many seconds")
    add("--out", type=Path, default=RESULTS / "parallel.csv", help="CSV file to add a row to")
    add("--dry", action="store_true", help="print, and record nothing")
    add("--commit", help="what was measured, where the tree is a copy without its history")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """What torchrun starts on each rank; 2 with one line on stderr when it failed."""
    options = parser().parse_args(arguments)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else None
    if device is not None:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", timeout=MEETING_LIMIT, device_id=device)
    try:
        model = load_model("dinov2-small", device)
        count = model.config.layers if options.layers is None else options.layers
        for side in options.side:
            row = measure(model, side, count, options.limit_s)
            if row is not None:
                print(sentence(row), flush=True)
                wrong = reason_against(row)
                if wrong is not None:
                    raise BenchError(wrong)
                if not options.dry:
                    append(options.out, [row | machine(options.commit)])
    except (BenchError, LostRank, ValueError, OSError) as fault:
        print(f"rank {dist.get_rank()}: {fault}", file=sys.stderr)
        return 2
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
