"""What the ranks of tests/kernels/test_parallel.py do; a module of its own, for the spawned processes."""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from kernels import attention
from kernels.parallel import (
    Shards,
    gathered,
    ring,
    ring_attention,
    ring_columns,
    ring_product,
    ring_rows,
)
from tests.ranks import sentence_of

WIDE, HEADS, KV_HEADS = 16, 4, 2
ROWS, COLUMNS = (0, 36, 37, 89), (5, 60, 61, 89)

CASES = {
    # name: (world, tokens of each rank, causal, dtype, kv_heads)
    "two": (2, (45, 45), False, torch.float32, HEADS),
    "two unequal": (2, (37, 53), False, torch.float32, HEADS),
    "two causal": (2, (37, 53), True, torch.float32, HEADS),
    "two half": (2, (37, 53), False, torch.float16, HEADS),
    "two shared heads": (2, (1, 89), False, torch.float32, KV_HEADS),
    "three": (3, (30, 30, 30), False, torch.float32, HEADS),
    "three unequal": (3, (61, 3, 26), False, torch.float32, KV_HEADS),
    "three causal": (3, (20, 41, 29), True, torch.float32, KV_HEADS),
    "three, one without tokens": (3, (50, 0, 40), False, torch.float32, HEADS),
    "three, causal, first without tokens": (3, (0, 61, 29), True, torch.float32, HEADS),
    "one": (1, (90,), False, torch.float32, HEADS),
    "one causal": (1, (90,), True, torch.float32, HEADS),
}


def whole(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and weights of a case, the same in every process; scores up to about 30."""
    _, lengths, _, dtype, kv_heads = CASES[name]
    make = torch.Generator().manual_seed(1)
    tokens = sum(lengths)
    q, k, v = (
        torch.randn(2, tokens, heads, WIDE, generator=make).transpose(1, 2).to(dtype)
        for heads in (HEADS, kv_heads, kv_heads)
    )
    return 2 * q, 2 * k, v, torch.rand(2, HEADS, tokens, generator=make)


def every_case(rank: int, world: int) -> dict[str, list]:
    """name -> this rank's part of every result, and the joined maps where it is the first."""
    groups = {2: dist.new_group([0, 1]), 3: None, 1: dist.new_group([2])}
    members = {2: (0, 1), 3: (0, 1, 2), 1: (2,)}
    answers = {}
    for name, (size, lengths, causal, _, _) in CASES.items():
        if rank in members[size]:
            place = members[size].index(rank)
            shards = Shards(place, lengths, lengths)
            answers[name] = one_case(name, groups[size], shards, causal)
    return answers


def one_case(
    name: str, group: dist.ProcessGroup | None, shards: Shards, causal: bool
) -> dict[str, object]:
    q, k, v, w = whole(name)
    part = slice(shards.first_query, shards.first_query + shards.queries[shards.rank])
    q, k, v, w = q[:, :, part], k[:, :, part], v[:, :, part], w[:, :, part]
    output, lse = ring_attention(q, k, v, group, causal=causal)
    same, same_lse = ring_attention(q, k, v, group, causal=causal, shards=shards)
    settings = {"group": group, "causal": causal}
    return {
        "output": output,
        "lse": lse,
        "repeats": torch.equal(output, same) and torch.equal(lse, same_lse),
        "rows": gathered(ring_rows(q, k, lse, ROWS, **settings), 3, group),
        "columns": gathered(ring_columns(q, k, lse, COLUMNS, **settings), 2, group),
        "received": gathered(ring_product(None, q, k, lse, **settings), 2, group),
        "weighted": gathered(ring_product(w, q, k, lse, **settings), 2, group),
        "on the last": gathered(lse, -1, group, to=shards.world - 1) is not None,
    }


def pairs(rank: int, world: int) -> dict[str, object]:
    """What needs two ranks and no cases."""
    return {
        "far keys": far_keys(rank),
        "on their way": on_their_way(rank, world),
        "refusals": refusals(rank),
    }


def far_keys(rank: int) -> tuple[Tensor, Tensor]:
    """Cross-attention where one rank's keys win by e**40, and where the scale is given."""
    make = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, 1, 8, 4, generator=make) for _ in range(3))
    k = k + 40 * (rank == 1)
    return ring_attention(q.abs(), k[:, :, : 3 + rank], v[:, :, : 3 + rank], scale=0.25)


def on_their_way(rank: int, world: int) -> list[tuple[int, int]]:
    """Of each shard that is handed out: its owner, and the transfers that were begun and not waited for."""
    begin, open_transfers = dist.batch_isend_irecv, []

    class Watched:
        def __init__(self, work: dist.Work) -> None:
            self.work = work
            open_transfers.append(self)

        def wait(self) -> None:
            self.work.wait()
            open_transfers.remove(self)

    dist.batch_isend_irecv = lambda steps: [Watched(work) for work in begin(steps)]
    try:
        mine = torch.full((1, 3, 4), float(rank))
        found = []
        for owner, shard in ring.passed_round(mine, Shards.even(3 * world, world, rank), None):
            assert torch.equal(shard, torch.full((1, 3, 4), float(owner)))
            found.append((owner, len(open_transfers)))
        return found
    finally:
        dist.batch_isend_irecv = begin


def refusals(rank: int) -> dict[str, str]:
    """What each rank is told where one of them holds the wrong thing."""
    q = torch.zeros(1, 2, 5, 8)
    odd = rank == 1
    group_of_one = dist.new_group([0])

    def attend(q: Tensor, k: Tensor | None = None, **settings: object) -> str:
        k = q if k is None else k
        return sentence_of(lambda: ring_attention(q, k, k, **settings))

    return {
        "heads": attend(torch.zeros(1, 3, 5, 8) if odd else q),
        "dtype": attend(q.half() if odd else q),
        "scale": attend(q, scale=0.5 if odd else None),
        "causal": attend(q, causal=odd),
        "own fault": attend(q, torch.zeros(1, 2, 5, 4) if odd else q),
        "causal across": attend(q, torch.zeros(1, 2, 7, 8), causal=True),
        "gradient": attend(torch.zeros(1, 2, 5, 8, requires_grad=True)),
        "outsider": attend(q, group=group_of_one) if odd else "",
        "parts": sentence_of(lambda: gathered(q[:, : 1 + rank], 2)),
        "row": sentence_of(lambda: ring_rows(q, q, q[..., 0], [10])),
        # One that fails has passed its keys on: else the other's would be mistaken for later ones.
        "implementation": attend(q, implementation="fa9"),
        "implementation of one": attend(q, implementation="fa9" if odd else "auto"),
        "after all": attend(q),
    }


def lost(rank: int, world: int, way: str, folder: Path) -> str:
    """After they have met once, rank 1 ends, or stays away until rank 0 has given up."""
    q = torch.zeros(1, 1, 4, 4)
    ring_attention(q, q, q)
    if rank == 1:
        deadline = time.monotonic() + 60
        while way == "late" and not (folder / "rank0.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        return ""
    # Known shards need no meeting before the keys are passed on.
    shards = Shards.even(8, 2, rank) if way == "gone at the transfer" else None
    start = time.monotonic()
    sentence = sentence_of(lambda: ring_attention(q, q, q, shards=shards))
    return f"{time.monotonic() - start:.0f} {sentence}"


def on_gpus(rank: int, world: int, tokens: int) -> dict[str, float]:
    """Largest differences between a ring of GPUs and one of them; a lone GPU passes to itself.

    To itself it sends its own shard as the other's, so the whole holds every key twice.
    """
    make = torch.Generator().manual_seed(5)
    packed = torch.randn(1, 2 * tokens, 3, 2, 64, generator=make).to("cuda", torch.float16)
    if world == 1:
        packed[:, tokens:] = packed[:, :tokens]
        ring.pass_on = to_itself
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    output, lse = attention(q, k, v)
    own = slice(rank * tokens, (rank + 1) * tokens)
    shards = Shards(rank, (tokens, tokens), (tokens, tokens))
    mine = q[:, :, own], k[:, :, own], v[:, :, own]
    part, part_lse = ring_attention(*mine, shards=shards)
    again, again_lse = ring_attention(*mine, shards=shards)
    return {
        "output": (part.float() - output[:, :, own].float()).abs().max().item(),
        "lse": (part_lse - lse[:, :, own]).abs().max().item(),
        "repeats": float(torch.equal(part, again) and torch.equal(part_lse, again_lse)),
    }


def to_itself(sent: Tensor, coming: Tensor, *_: object) -> None:
    """NCCL's own transfer, without a second GPU."""
    steps = ((dist.isend, sent), (dist.irecv, coming))
    for work in dist.batch_isend_irecv(
        [dist.P2POp(way, part, group_peer=0) for way, part in steps]
    ):
        work.wait()


def truth(name: str) -> tuple[Tensor, Tensor]:
    """One process's own result, in float32 also where the case is in half precision."""
    q, k, v, _ = whole(name)
    return attention(q.float(), k.float(), v.float(), causal=CASES[name][2])
