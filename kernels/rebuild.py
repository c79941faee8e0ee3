"""The public doors to parts of the attention matrix, rebuilt from Q, K and the log-sum-exp.

None of them is differentiable: they run under `torch.no_grad()`, whatever their arguments require.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import recompute
from kernels.checks import check_index, check_query_key, check_rebuild, check_weights


@torch.no_grad()
def attention_rows(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    rows: Sequence[int] | Tensor,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Rows of P rebuilt: P[i, j] = exp(scale * q_i . k_j - lse_i), where those queries look.

    Not differentiable.

    Args:
        q, k, scale, causal: as they were given to `attention`.
        lse: the log-sum-exp that `attention` returned, float32 [batch, heads, queries], any strides.
        rows: query indices, each in [0, queries).

    Returns:
        float32 [batch, heads, len(rows), keys]. Memory beyond the result is O(1).

    Raises:
        TypeError, ValueError: as for `attention`, and for an index out of range.

    Source: Dao et al. 2022, Algorithm 4 line 11; Dao 2023, section 3.1.2 (P from L in the backward).
    """
    scale = check_rebuild(q, k, lse, scale)
    index = check_index("rows", rows, q.shape[2], q.device)
    return recompute.rows(q, k, lse, index, scale, causal)


@torch.no_grad()
def attention_columns(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    columns: Sequence[int] | Tensor,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Columns of P rebuilt: who looks at those keys, and how much. Not differentiable.

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
    return recompute.columns(q, k, lse, index, scale, causal)


@torch.no_grad()
def attention_product(
    w: Tensor | None,
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """w^T P, and P is never stored: what each key receives when query i counts w_i.

    With w None or ones these are the column sums, the attention that each key receives. Not
    differentiable. The same call on the same machine gives the same bits.

    Args:
        w: float32, float16 or bfloat16 [batch, heads, queries], or what broadcasts to it, such as
            [queries]; any strides, never copied. None means ones.
        q, k, lse, scale, causal: as for `attention_rows`. A query whose lse is -inf gives nothing.

    Returns:
        float32 [batch, heads, keys]: sum_i w_i P[i, j]. Its sum over the keys is the sum of w over the
        queries that see a key. Memory beyond the result is O(queries + keys).

    Raises:
        TypeError, ValueError: as for `attention_rows`, and where w is no such tensor.

    Source: dV = P^T dO with w in the place of one column of dO; Dao et al. 2022, Algorithm 4 line 16.
    """
    scale = check_rebuild(q, k, lse, scale)
    return recompute.product(check_weights(w, q), q, k, lse, scale, causal)


@torch.no_grad()
def attention_gradient_rows(
    grad_output: Tensor, v: Tensor, rows: Sequence[int] | Tensor, causal: bool = False
) -> Tensor:
    """Rows of dP = dO V^T, the gradient of P: how much more of each weight would move the outcome.

    Times the same rows of P they give a gradient-weighted relevance map, relu(P * dP). Not
    differentiable.

    Args:
        grad_output: gradient of attention's output, [batch, heads, queries, head_dim], any strides.
        v: as it was given to `attention`, of grad_output's dtype.
        rows: query indices, each in [0, queries).
        causal: as it was given to `attention`; dP is 0 where a key is hidden from a query.

    Returns:
        float32 [batch, heads, len(rows), keys]: dP[i, j] = dO_i . v_j. Memory beyond the result is O(1).

    Raises:
        TypeError, ValueError: as for `attention`, and for an index out of range.

    Source: Dao et al. 2022, appendix B.2 (dP = dO V^T); Chefer et al. 2021, equation 5 (relevance).
    """
    check_query_key(grad_output, v, "grad_output", "v")
    index = check_index("rows", rows, grad_output.shape[2], v.device)
    return recompute.gradient_rows(grad_output, v, index, causal)


@torch.no_grad()
def attention_gradient_columns(
    grad_output: Tensor, v: Tensor, columns: Sequence[int] | Tensor, causal: bool = False
) -> Tensor:
    """Columns of dP = dO V^T: the gradient of all weights on those keys. Not differentiable.

    Args:
        grad_output, v, causal: as for `attention_gradient_rows`.
        columns: key indices, each in [0, keys).

    Returns:
        float32 [batch, heads, queries, len(columns)]. Memory beyond the result is O(1).

    Raises:
        TypeError, ValueError: as for `attention_gradient_rows`.
    """
    check_query_key(grad_output, v, "grad_output", "v")
    index = check_index("columns", columns, v.shape[2], v.device)
    return recompute.gradient_columns(grad_output, v, index, causal)
