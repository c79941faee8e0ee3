"""Parts of every rank put together on one of them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from kernels.parallel.faults import check_group, meeting
from kernels.parallel.shards import exchanged


def gathered(
    part: Tensor, dim: int, group: dist.ProcessGroup | None = None, to: int = 0
) -> Tensor | None:
    """The ranks' parts joined along `dim`, in the order of the ranks, on rank `to`; None on the others.

    The parts may differ in their length along `dim` alone; all have one dtype.

    Raises:
        ValueError: the parts do not fit together, told to every rank.
        LostRank: a rank did not come.
    """
    check_group(group)
    dim %= part.ndim
    shapes = exchanged([*part.shape, part.ndim], group)
    for rank, shape in enumerate(shapes):
        others = shape[:dim] + shape[dim + 1 :]
        if others != shapes[0][:dim] + shapes[0][dim + 1 :]:
            raise ValueError(
                f"rank {rank} has a part of shape {shape[:-1]}, which does not join rank 0's "
                f"{shapes[0][:-1]} along dimension {dim}"
            )
    rank = dist.get_rank(group)
    if rank != to:
        send(part.contiguous(), to, group)
        return None
    parts = [part if at == rank else part.new_empty(shape[:-1]) for at, shape in enumerate(shapes)]
    receive([(at, whole) for at, whole in enumerate(parts) if at != rank], group)
    return torch.cat(parts, dim)


def send(part: Tensor, to: int, group: dist.ProcessGroup | None) -> None:
    """This rank's part to another, unless it is empty."""
    if part.numel():
        step = dist.P2POp(dist.isend, part, group=group, group_peer=to)
        finish([step], "send its part")


def receive(parts: list[tuple[int, Tensor]], group: dist.ProcessGroup | None) -> None:
    """Fill the parts from the ranks beside them."""
    finish(
        [
            dist.P2POp(dist.irecv, part, group=group, group_peer=at)
            for at, part in parts
            if part.numel()
        ],
        "send its part",
    )


def finish(steps: list[dist.P2POp], what: str) -> None:
    """Begin these transfers together; on a GPU what is queued from now on waits for them, else the caller."""
    with meeting(what):
        for transfer in dist.batch_isend_irecv(steps) if steps else []:
            transfer.wait()
