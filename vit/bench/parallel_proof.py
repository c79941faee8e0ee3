"""Is a split run right, and what does it cost to pass keys on? Every rank calls these alike."""

from __future__ import annotations

import math
import time

import torch
import torch.distributed as dist
from torch import Tensor

from kernels.parallel import gathered, ring_rows
from kernels.parallel.faults import backend_device
from kernels.parallel.ring import pass_on, room_for_longest
from kernels.recompute.proof import rows_error
from vit.grid import PatchGrid
from vit.model import VisionTransformer
from vit.parallel import shards_of
from vit.parallel_maps import PARTS
from vit.trace import LayerTrace

Maps = list[Tensor | None]
"""Of one layer, in the order of PARTS: [heads, tokens] on rank 0's CPU, None on the others."""


def now(device: torch.device) -> float:
    """Seconds, when the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def slowest(seconds: float) -> float:
    """The largest of all ranks' figures, on every rank."""
    figure = torch.tensor([seconds], dtype=torch.float64, device=backend_device(None))
    dist.all_reduce(figure, dist.ReduceOp.MAX)
    return figure.item()


def difference(one: list[Maps], split: list[Maps]) -> dict[str, float]:
    """How far the maps of both lie apart, each kind's largest, as a share of the largest weight of its map."""
    shares: dict[str, list[Tensor]] = {kind: [] for kind in PARTS}
    for alone, together in zip(one, split, strict=True):
        for kind, true, part in zip(PARTS, alone, together, strict=True):
            assert true is not None
            assert part is not None
            shares[kind].append((part - true).abs().max() / true.max())
    return {kind: torch.stack(found).max().item() for kind, found in shares.items()}  # keeps NaN


def float64_error(layer: LayerTrace, model: VisionTransformer, grid: PatchGrid) -> float | None:
    """Rows of the split run's last layer against float64 on the same q and k, as a share of the largest weight.

    It proves the merged log-sum-exp as well. On rank 0; None elsewhere.
    """
    shards = shards_of(model, grid)
    tokens = sum(shards.keys)
    index = sorted({0, tokens // 3, tokens // 2, tokens - 1})
    scale = model.config.head_dim**-0.5
    part = ring_rows(layer.q, layer.k, layer.log_sum_exp, index, scale=scale, shards=shards)
    rows, k = gathered(part, 3), gathered(layer.k, 2)
    q = gathered(layer.q, 2)
    if rows is None or k is None or q is None:
        return None
    return rows_error(rows, q[:, :, index], k, range(len(index)), scale) / rows.max().item()


def passing_s(layer: LayerTrace, model: VisionTransformer, grid: PatchGrid) -> float:
    """Seconds for one round of passing K and V on, while nothing else runs."""
    shards = shards_of(model, grid)
    if shards.world == 1:
        return 0.0
    mine = torch.stack([layer.k, layer.v])
    before = (shards.rank - 1) % shards.world
    shape = (*mine.shape[:3], shards.keys[before], mine.shape[4])
    room = room_for_longest(mine, shards)[: math.prod(shape)].view(shape)
    seconds = 0.0
    for _ in range(2):  # the first one warms up
        dist.barrier()
        start = now(model.device)
        pass_on(mine, room, shards, None)
        seconds = slowest(now(model.device) - start)
    return seconds
