"""The public doors to parts of the attention matrix, rebuilt from Q, K and the log-sum-exp."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernels.checks import check_index, check_rebuild
from kernels.recompute import columns as recompute_columns
from kernels.recompute import rows as recompute_rows


def attention_rows(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    rows: Sequence[int] | Tensor,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Rows of P rebuilt: P[i, j] = exp(scale * q_i . k_j - lse_i), where those queries look.

    Args:
        q, k, scale, causal: as they were given to `attention`.
        lse: the log-sum-exp that `attention` returned, float32 [batch, heads, queries].
        rows: query indices, each in [0, queries).

    Returns:
        float32 [batch, heads, len(rows), keys]. Memory beyond the result is O(1).

    Raises:
        TypeError, ValueError: as for `attention`, and for an index out of range.

    Source: Dao et al. 2022, Algorithm 4 line 11; Dao 2023, section 3.1.2 (P from L in the backward).
    """
    scale = check_rebuild(q, k, lse, scale)
    return recompute_rows(q, k, lse, check_index("rows", rows, q.shape[2], q.device), scale, causal)


def attention_columns(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    columns: Sequence[int] | Tensor,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Columns of P rebuilt: who looks at those keys, and how much.

    Args:
        q, k, lse, scale, causal: as for `attention_rows`.
        columns: key indices, each in [0, keys).

    Returns:
        float32 [batch, heads, queries, len(columns)]. Memory beyond the result is O(1).

    Raises:
        TypeError, ValueError: as for `attention_rows`.
    """
    scale = check_rebuild(q, k, lse, scale)
    index = check_index("columns", columns, k.shape[2], q.device)
    return recompute_columns(q, k, lse, index, scale, causal)
