"""Attention over tokens that no single process holds."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from kernels.door import attention
from kernels.parallel.faults import check_group
from kernels.parallel.merge import Merged
from kernels.parallel.ring import passed_round
from kernels.parallel.shards import Shards, agree


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: dist.ProcessGroup | None = None,
    scale: float | None = None,
    causal: bool = False,
    implementation: str = "auto",
    shards: Shards | None = None,
) -> tuple[Tensor, Tensor]:
    """`attention` of this rank's queries over the keys of all ranks, which are passed round a ring.

    Every rank of the group calls it with its own shard of the sequence. No rank ever holds more than
    three shards of K and V. Not differentiable.

    Args:
        q: [batch, heads, own queries, head_dim].
        k: [batch, kv_heads, own keys, head_dim]; the ranks may hold different numbers of tokens, or none.
        v: like k.
        group: the ranks that share the sequence, in its order; None means all.
        scale, implementation: as for `attention`.
        causal: token i of the whole sequence sees tokens j <= i. Needs the same tokens as queries and
            keys on each rank. Early ranks then wait for late ones: shards are not balanced for it.
        shards: who holds what, where the caller knows; else it is exchanged first, and checked.

    Returns:
        output, like q, and log_sum_exp, float32 [batch, heads, own queries], over all keys. The parts
        are merged in float32, so they differ from one GPU's by the rounding of each part to q's dtype.

    Raises:
        TypeError, ValueError: as for `attention`, on every rank where the ranks' tensors do not fit.
        LostRank: another rank ended, or did not come in time.

    Source: Liu et al. 2023, Ring Attention with Blockwise Transformers.
    """
    check_group(group)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise ValueError("ring_attention has no backward; call it under torch.no_grad()")
    shards = agree(q, k, v, scale, causal, group) if shards is None else shards
    if shards.world == 1:
        return attention(q, k, v, scale, causal, implementation)
    merged = None
    for owner, (keys, values) in passed_round(torch.stack([k, v]), shards, group):
        if causal and owner > shards.rank:
            continue  # all of these tokens come later
        own = owner == shards.rank
        part = attention(q, keys, values, scale, causal and own, implementation)
        if merged is None:
            merged = Merged(*part)
        else:
            merged.add(*part)
    assert merged is not None  # a rank's own shard is always seen
    return merged.output(), merged.log_sum_exp
