"""A tensor of every rank passed round the ring."""

from __future__ import annotations

import math
from collections.abc import Generator

import torch.distributed as dist
from torch import Tensor

from kernels.parallel.gather import finish
from kernels.parallel.shards import Shards


def passed_round(
    mine: Tensor, shards: Shards, group: dist.ProcessGroup | None
) -> Generator[tuple[int, Tensor]]:
    """(owner, shard): this rank's own first, then that of the rank before it, and so on round the ring.

    `mine` is contiguous [..., keys, width]; the ranks' shards differ in the number of keys alone. What
    was handed out is good until the next is asked for. Memory: two shards more, one for two ranks.

    What is handed out has already been passed on, and on a GPU work queued from then on waits for that.
    So nothing travels while a shard is used, and a user that fails leaves no transfer behind that a
    later one would be mistaken for. On a GPU that is no loss but a gain. NCCL copies by a kernel, which
    holds its multiprocessors while it waits for a rank that is late; fa3 has one program for each
    multiprocessor and shares none. Where NCCL's kernel came first, by chance, on one rank and not on
    the other, programs of fa3 began when all others had ended, and the step took 1.8 times as long:
    0.6 s more at 501,001 tokens a rank, where a transfer takes 2 ms.

    Source: Liu et al. 2023, Ring Attention with Blockwise Transformers, section 3.
    """
    buffers = [room_for_longest(mine, shards) for _ in range(min(2, shards.world - 1))]
    owner, in_hand = shards.rank, mine
    for step in range(shards.world):
        next_owner = (owner - 1) % shards.world
        coming = in_hand
        if step + 1 < shards.world:
            shape = (*mine.shape[:-2], shards.keys[next_owner], mine.shape[-1])
            coming = buffers[step % 2][: math.prod(shape)].view(shape)
            pass_on(in_hand, coming, shards, group)
        yield owner, in_hand
        owner, in_hand = next_owner, coming


def room_for_longest(mine: Tensor, shards: Shards) -> Tensor:
    """Memory for any rank's shard, flat."""
    return mine.new_empty(math.prod(mine.shape[:-2]) * max(shards.keys) * mine.shape[-1])


def pass_on(sent: Tensor, coming: Tensor, shards: Shards, group: dist.ProcessGroup | None) -> None:
    """Send to the next rank and fill `coming` from the one before; nothing travels empty."""
    after, before = ((shards.rank + way) % shards.world for way in (1, -1))
    steps = []
    if sent.numel():
        steps.append(dist.P2POp(dist.isend, sent, group=group, group_peer=after))
    if coming.numel():
        steps.append(dist.P2POp(dist.irecv, coming, group=group, group_peer=before))
    finish(steps, "pass on its keys")
