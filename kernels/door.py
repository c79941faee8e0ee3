"""The public door of attention: check the arguments, then compute, through autograd where it is needed."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.checks import check_query_key, check_same, default_scale
from kernels.operator import compute, differentiable_attention
from kernels.repeat import repeated


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    causal: bool = False,
    implementation: str = "auto",
) -> tuple[Tensor, Tensor]:
    """softmax(scale * Q K^T) V, and the log-sum-exp from which any part of the softmax can be rebuilt.

    Differentiable in both results, and one operator under torch.compile.

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
        ValueError: shapes or devices do not fit, or the implementation cannot run this problem here,
            or not its gradient; the sentence names the argument or says what would help.

    Source: Dao et al. 2022, Algorithm 1; Dao 2023, Algorithm 1 (log-sum-exp L in line 12).
    """
    known = repeated(q, k, v, scale, causal, implementation)
    if known is not None:
        return known[0], known[1]
    check_query_key(q, k)
    check_same("v", v, k)
    scale = default_scale(q) if scale is None else float(scale)
    wants_gradient = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad
    )
    if wants_gradient or torch.compiler.is_compiling():
        return differentiable_attention(q, k, v, scale, causal, implementation, wants_gradient)
    output, log_sum_exp, _ = compute(q, k, v, scale, causal, implementation, keep=False)
    return output, log_sum_exp
