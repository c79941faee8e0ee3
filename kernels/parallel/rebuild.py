"""Parts of the attention matrix of a split sequence: each rank rebuilds what its own tokens tell.

Indices count in the whole sequence, and every rank must ask for the same. What comes back is this
rank's part; `gathered` joins the parts. None of them is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from kernels import recompute
from kernels.checks import check_index, check_rebuild, check_weights
from kernels.parallel.faults import meeting
from kernels.parallel.ring import passed_round
from kernels.parallel.shards import Shards, agree
from kernels.rebuild import attention_product

Index = Sequence[int] | Tensor


@torch.no_grad()
def ring_rows(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    rows: Index,
    group: dist.ProcessGroup | None = None,
    scale: float | None = None,
    causal: bool = False,
    shards: Shards | None = None,
) -> Tensor:
    """Rows of P at this rank's keys: where those queries look. Their owners tell q and lse to all.

    Args:
        q, k, group, scale, causal, shards: as for `ring_attention`.
        lse: the log-sum-exp that it returned.
        rows: query indices in the whole sequence.

    Returns:
        float32 [batch, heads, len(rows), own keys]; join the parts along dimension 3.

    Raises:
        TypeError, ValueError, LostRank: as for `ring_attention`, and for an index out of range.
    """
    scale = check_rebuild(q, k, lse, scale)
    shards = agree(q, k, k, scale, causal, group) if shards is None else shards
    index = check_index("rows", rows, sum(shards.queries), q.device)
    first = shards.first_query
    row_q = told_by_owners(q, index, first, group)
    row_lse = told_by_owners(lse.unsqueeze(-1), index, first, group).squeeze(-1)
    part = recompute.rows(row_q, k, row_lse, counted(0, len(index), q), scale, causal=False)
    if causal:
        keys = counted(shards.first_key(shards.rank), k.shape[2], q)
        hide(part, index, keys, shards)
    return part


@torch.no_grad()
def ring_columns(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    columns: Index,
    group: dist.ProcessGroup | None = None,
    scale: float | None = None,
    causal: bool = False,
    shards: Shards | None = None,
) -> Tensor:
    """Columns of P at this rank's queries: who looks at those keys. Their owners tell k to all.

    Args:
        q, k, lse, group, scale, causal, shards: as for `ring_rows`.
        columns: key indices in the whole sequence.

    Returns:
        float32 [batch, heads, own queries, len(columns)]; join the parts along dimension 2.

    Raises:
        TypeError, ValueError, LostRank: as for `ring_rows`.
    """
    scale = check_rebuild(q, k, lse, scale)
    shards = agree(q, k, k, scale, causal, group) if shards is None else shards
    index = check_index("columns", columns, sum(shards.keys), q.device)
    column_k = told_by_owners(k, index, shards.first_key(shards.rank), group)
    part = recompute.columns(q, column_k, lse, counted(0, len(index), q), scale, causal=False)
    if causal:
        hide(part, counted(shards.first_query, q.shape[2], q), index, shards)
    return part


@torch.no_grad()
def ring_product(
    w: Tensor | None,
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    group: dist.ProcessGroup | None = None,
    scale: float | None = None,
    causal: bool = False,
    shards: Shards | None = None,
) -> Tensor:
    """w^T P at this rank's keys: what they receive when query i of the whole sequence counts w_i.

    K is passed round; each rank adds up its own queries, and the sums are added over the ranks.

    Args:
        w: weights of this rank's queries, as for `attention_product`; None means ones, on every rank.
        q, k, lse, group, scale, causal, shards: as for `ring_rows`.

    Returns:
        float32 [batch, heads, own keys]; join the parts along dimension 2. Memory beyond it: the sums of
        all keys, and up to three shards of K.

    Raises:
        TypeError, ValueError, LostRank: as for `ring_rows`.
    """
    scale = check_rebuild(q, k, lse, scale)
    shards = agree(q, k, k, scale, causal, group) if shards is None else shards
    w = check_weights(w, q)
    received = q.new_zeros(*q.shape[:2], sum(shards.keys), dtype=torch.float32)
    for owner, keys in passed_round(k.contiguous(), shards, group):
        if causal and owner > shards.rank:
            continue  # all of these keys come later
        first, own = shards.first_key(owner), owner == shards.rank
        received[:, :, first : first + shards.keys[owner]] = attention_product(
            w, q, keys, lse, scale, causal and own
        )
    add_over_ranks(received, group)
    first = shards.first_key(shards.rank)
    return received[:, :, first : first + k.shape[2]].clone()  # so that the rest can be freed


def told_by_owners(
    tensor: Tensor, index: Tensor, first: int, group: dist.ProcessGroup | None
) -> Tensor:
    """tensor[:, :, index] of the whole sequence, from each token's owner; `first` is this rank's first.

    A sum with the zeros of all the other ranks is exact.
    """
    here = (index >= first) & (index < first + tensor.shape[2])
    batch, heads, _, width = tensor.shape
    told = tensor.new_zeros(batch, heads, len(index), width, dtype=torch.float32)
    told[:, :, here] = tensor[:, :, index[here] - first].float()
    add_over_ranks(told, group)
    return told.to(tensor.dtype)


def add_over_ranks(tensor: Tensor, group: dist.ProcessGroup | None) -> None:
    """The sum of all ranks' tensors, in place, on every rank."""
    if tensor.numel():
        with meeting("add its part"):
            dist.all_reduce(tensor, group=group)


def counted(first: int, count: int, like: Tensor) -> Tensor:
    """The indices from `first` on, on the same device."""
    return torch.arange(first, first + count, device=like.device)


def hide(part: Tensor, queries: Tensor, keys: Tensor, shards: Shards) -> None:
    """Write 0, in place, where the causal mask hides the key; both count in the whole sequence."""
    last_seen = queries + shards.keys_minus_queries
    part.masked_fill_(keys > last_seen.unsqueeze(-1), 0.0)
