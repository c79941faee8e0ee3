"""Who holds which tokens: shards of the sequence, in the order of the ranks, of any lengths."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor

from kernels.checks import DTYPES, check_query_key, check_same
from kernels.parallel.faults import backend_device, check_group, meeting, reason_against_device

AGREED = (
    "batch size",
    "number of heads",
    "number of kv_heads",
    "head_dim",
    "dtype",
    "scale",
    "causal",
)
"""What all ranks must have in common, in the order in which it is exchanged."""


@dataclass(frozen=True)
class Shards:
    """Tokens of each rank, on the side of the queries and of the keys; the same for self-attention."""

    rank: int
    queries: tuple[int, ...]
    keys: tuple[int, ...]

    @classmethod
    def even(cls, tokens: int, world: int, rank: int) -> Self:
        """Self-attention over `tokens`, split as evenly as it goes; the first ranks get one more."""
        share, more = divmod(tokens, world)
        lengths = tuple(share + (place < more) for place in range(world))
        return cls(rank, lengths, lengths)

    @property
    def world(self) -> int:
        return len(self.keys)

    @property
    def first_query(self) -> int:
        """Where this rank's queries begin in the whole sequence."""
        return sum(self.queries[: self.rank])

    def first_key(self, rank: int) -> int:
        """Where that rank's keys begin in the whole sequence."""
        return sum(self.keys[:rank])

    @property
    def keys_minus_queries(self) -> int:
        """What a causal mask is shifted by: query i of the whole sees keys j <= i + this."""
        return sum(self.keys) - sum(self.queries)


def agree(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    causal: bool,
    group: dist.ProcessGroup | None,
) -> Shards:
    """Exchange what every rank holds, so that a fault on one ends all of them with a sentence.

    Costs one small collective, which waits for the slowest rank.

    Raises:
        TypeError, ValueError: this rank's tensors do not fit, or do not fit another rank's.
        LostRank: a rank did not come.
    """
    check_group(group)
    fault = fault_of(q, k, v, causal, group)
    mine = (
        [0] * (3 + len(AGREED))
        if fault
        else [1, q.shape[2], k.shape[2], *common(q, k, scale, causal)]
    )
    table = exchanged(mine, group)
    if fault is not None:
        raise fault
    for rank, row in enumerate(table):
        if not row[0]:
            raise ValueError(f"rank {rank} refused its tensors; its own message says why")
        for name, here, there in zip(AGREED, table[0][3:], row[3:], strict=True):
            if here != there:
                raise ValueError(
                    f"rank {rank} and rank 0 have not the same {name}; "
                    "every rank must hold a shard of the same tensors"
                )
    queries, keys = (tuple(row[place] for row in table) for place in (1, 2))
    return Shards(dist.get_rank(group), queries, keys)


def fault_of(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, group: dist.ProcessGroup | None
) -> TypeError | ValueError | None:
    """What is wrong with this rank's own tensors, to be raised when the others know of it."""
    try:
        check_query_key(q, k)
        check_same("v", v, k)
    except (TypeError, ValueError) as fault:
        return fault
    reason = reason_against_device(q.device, group)
    if reason is not None:
        return ValueError(reason)
    if causal and q.shape[2] != k.shape[2]:
        return ValueError(
            f"causal needs the same tokens as queries and keys on each rank, not {q.shape[2]} queries "
            f"and {k.shape[2]} keys; leave causal out, or split both sides alike"
        )
    return None


def common(q: Tensor, k: Tensor, scale: float | None, causal: bool) -> list[int]:
    """AGREED as whole numbers; the scale by its bits, and -1 (no number has these) where it is left out."""
    bits = -1 if scale is None else struct.unpack("<q", struct.pack("<d", scale))[0]
    batch, heads, _, head_dim = q.shape
    return [batch, heads, k.shape[1], head_dim, DTYPES.index(q.dtype), bits, int(causal)]


def exchanged(mine: list[int], group: dist.ProcessGroup | None) -> list[list[int]]:
    """Every rank's numbers, on every rank, in the order of the ranks."""
    row = torch.tensor(mine, dtype=torch.int64, device=backend_device(group))
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size(group))]
    with meeting("say what it holds"):
        dist.all_gather(rows, row, group=group)
        return torch.stack(rows).tolist()
