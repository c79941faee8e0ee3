"""Attention over tokens that are split between processes, one GPU each: context parallelism.

    output, lse = ring_attention(q, k, v)          # this rank's queries against all ranks' keys
    row = gathered(ring_rows(q, k, lse, [17]), 3)  # whole on rank 0, None elsewhere

Every rank calls the same function in the same order, as for any collective of torch.distributed.
"""

from kernels.parallel.attention import ring_attention
from kernels.parallel.faults import LostRank
from kernels.parallel.gather import gathered
from kernels.parallel.rebuild import ring_columns, ring_product, ring_rows
from kernels.parallel.shards import Shards

__all__ = [
    "LostRank",
    "Shards",
    "gathered",
    "ring_attention",
    "ring_columns",
    "ring_product",
    "ring_rows",
]
