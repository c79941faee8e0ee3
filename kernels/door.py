"""The public operations: check the arguments, choose an implementation, answer the empty cases."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.problem import Problem
from kernels.recompute import columns as recompute_columns
from kernels.recompute import rows as recompute_rows
from kernels.registry import choose, load

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    causal: bool = False,
    implementation: str = "auto",
) -> tuple[Tensor, Tensor]:
    """softmax(scale * Q K^T) V, and the log-sum-exp from which any part of the softmax can be rebuilt.

    Args:
        q: [batch, heads, queries, head_dim], float32, float16 or bfloat16, any strides.
        k: [batch, kv_heads, keys, head_dim], of q's dtype and device; heads % kv_heads == 0.
        v: like k.
        scale: factor on the scores; None means 1 / sqrt(head_dim).
        causal: query i sees keys j <= i + keys - queries (aligned to the bottom right).
        implementation: "auto", or a name that `implementations()` lists.

    Returns:
        output, like q, and log_sum_exp, float32 [batch, heads, queries]: the natural logarithm of
        sum_j exp(scale * q_i . k_j). A query that may see no key gives output 0 and log-sum-exp -inf.

    Raises:
        TypeError: an argument is not a tensor of a supported dtype, or the dtypes differ.
        ValueError: shapes or devices do not fit, or the implementation cannot run this problem here;
            the sentence names the argument.

    Source: Dao et al. 2022, Algorithm 1; Dao 2023, Algorithm 1 (log-sum-exp L in line 12).
    """
    check_query_key(q, k)
    check_same("v", v, k)
    problem = Problem.of(q, k, causal)
    scale = default_scale(q) if scale is None else float(scale)
    name = choose(problem, q.device) if implementation == "auto" else implementation
    chosen = load(name)
    reason = chosen.supports(problem, q.device)
    if reason is not None:
        raise ValueError(reason)
    if (
        not chosen.differentiable
        and torch.is_grad_enabled()
        and any(t.requires_grad for t in (q, k, v))
    ):
        raise ValueError(
            f"{name} has no backward yet; use torch.no_grad(), or implementation='eager'."
        )
    if problem.empty:
        return torch.zeros_like(q), q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
    return chosen.forward(q, k, v, scale, causal)


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


def default_scale(q: Tensor) -> float:
    """1 / sqrt(head_dim), Vaswani et al. 2017, equation 1."""
    return max(q.shape[-1], 1) ** -0.5


def check_rebuild(q: Tensor, k: Tensor, lse: Tensor, scale: float | None) -> float:
    """Check what rebuilding takes, and settle the scale."""
    check_query_key(q, k)
    if not isinstance(lse, Tensor) or lse.dtype != torch.float32:
        raise TypeError("lse must be the float32 log-sum-exp that attention() returned")
    if lse.shape != q.shape[:3] or lse.device != q.device:
        raise ValueError(
            f"lse must be {list(q.shape[:3])} on {q.device} like q, not {list(lse.shape)} on {lse.device}"
        )
    return default_scale(q) if scale is None else float(scale)


def check_query_key(q: Tensor, k: Tensor) -> None:
    """Check q by itself and k against it."""
    if not isinstance(q, Tensor) or q.dtype not in DTYPES:
        got = q.dtype if isinstance(q, Tensor) else type(q).__name__
        raise TypeError(f"q must be a float32, float16 or bfloat16 tensor, not {got}")
    if q.ndim != 4:
        raise ValueError(f"q must be [batch, heads, queries, head_dim], not {list(q.shape)}")
    if not isinstance(k, Tensor) or k.dtype != q.dtype:
        got = k.dtype if isinstance(k, Tensor) else type(k).__name__
        raise TypeError(f"k must be a {q.dtype} tensor like q, not {got}")
    if k.device != q.device:
        raise ValueError(f"k is on {k.device} but q is on {q.device}; move them to one device")
    if k.ndim != 4 or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        batch, dim = q.shape[0], q.shape[3]
        raise ValueError(
            f"k must be [{batch}, kv_heads, keys, {dim}] to fit q, not {list(k.shape)}"
        )
    if q.shape[1] and (not k.shape[1] or q.shape[1] % k.shape[1]):
        raise ValueError(f"k has {k.shape[1]} heads, which does not divide q's {q.shape[1]}")


def check_same(name: str, tensor: Tensor, model: Tensor) -> None:
    """Check that v is what k is."""
    if not isinstance(tensor, Tensor) or tensor.dtype != model.dtype:
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must be a {model.dtype} tensor like k, not {got}")
    if tensor.shape != model.shape:
        raise ValueError(
            f"{name} must have k's shape {list(model.shape)}, not {list(tensor.shape)}"
        )
    if tensor.device != model.device:
        raise ValueError(
            f"{name} is on {tensor.device} but k is on {model.device}; move them to one device"
        )


def check_index(
    name: str, index: Sequence[int] | Tensor, size: int, device: torch.device
) -> Tensor:
    """The indices as an int64 tensor on the device, each checked against the size."""
    host = torch.as_tensor(index)
    if host.numel() and (host.is_floating_point() or host.dtype == torch.bool):
        raise TypeError(f"{name} must be whole numbers, not {host.dtype}")
    if host.ndim != 1:
        raise ValueError(f"{name} must be a list of indices, not of shape {list(host.shape)}")
    if host.numel() and (int(host.min()) < 0 or int(host.max()) >= size):
        raise ValueError(
            f"{name} must lie in 0 to {size - 1}, not {int(host.min())} to {int(host.max())}"
        )
    return host.to(device, torch.int64)
