"""A tensor of every rank passed round the ring; the next one travels while the one in hand is used."""

from __future__ import annotations

import math
from collections.abc import Generator

import torch.distributed as dist
from torch import Tensor

from kernels.parallel.faults import meeting
from kernels.parallel.shards import Shards


def passed_round(
    mine: Tensor, shards: Shards, group: dist.ProcessGroup | None
) -> Generator[tuple[int, Tensor]]:
    """(owner, shard): this rank's own first, then that of the rank before it, and so on round the ring.

    `mine` is contiguous [..., keys, width]; the ranks' shards differ in the number of keys alone. What
    was handed out is good until the next is asked for. Memory: two shards more, one for two ranks.
    Close it (`contextlib.closing`), so that where its user fails no transfer is left behind: all later
    ones in the group would be mistaken for others.

    On a GPU the transfer runs in NCCL's own stream: it begins when the work queued before it is done,
    the last reader of the buffer that it fills among it, and only work queued after the next shard was
    asked for waits for it. With gloo it runs in gloo's threads.

    Source: Liu et al. 2023, Ring Attention with Blockwise Transformers, section 3.
    """
    buffers = [room_for_longest(mine, shards) for _ in range(min(2, shards.world - 1))]
    owner, in_hand = shards.rank, mine
    for step in range(shards.world):
        next_owner = (owner - 1) % shards.world
        coming, transfers = in_hand, []
        if step + 1 < shards.world:
            shape = (*mine.shape[:-2], shards.keys[next_owner], mine.shape[-1])
            coming = buffers[step % 2][: math.prod(shape)].view(shape)
            transfers = start_passing(in_hand, coming, shards, group)
        try:
            yield owner, in_hand
        finally:
            with meeting("pass on its keys"):
                for transfer in transfers:
                    transfer.wait()
        owner, in_hand = next_owner, coming


def room_for_longest(mine: Tensor, shards: Shards) -> Tensor:
    """Memory for any rank's shard, flat."""
    return mine.new_empty(math.prod(mine.shape[:-2]) * max(shards.keys) * mine.shape[-1])


def start_passing(
    sent: Tensor, coming: Tensor, shards: Shards, group: dist.ProcessGroup | None
) -> list[dist.Work]:
    """Begin to send to the next rank and to fill `coming` from the one before; nothing travels empty."""
    after, before = ((shards.rank + way) % shards.world for way in (1, -1))
    steps = []
    if sent.numel():
        steps.append(dist.P2POp(dist.isend, sent, group=group, group_peer=after))
    if coming.numel():
        steps.append(dist.P2POp(dist.irecv, coming, group=group, group_peer=before))
    with meeting("pass on its keys"):
        return dist.batch_isend_irecv(steps) if steps else []
