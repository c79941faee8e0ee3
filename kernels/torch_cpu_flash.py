"""FlashAttention on the CPU: torch's own tiled kernel, with the log-sum-exp that it returns."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.eager import for_each_head, summed_over_group
from kernels.implementation import Implementation, Saved
from kernels.problem import Problem

DTYPES = ("float32", "float16", "bfloat16")


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    q, k, v = readable(q), readable(for_each_head(k, group)), readable(for_each_head(v, group))
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, log_sum_exp = flash(q, k, v, 0.0, causal, scale=scale)
    return output, log_sum_exp.float()


def backward(
    saved: Saved, grad_output: Tensor, grad_log_sum_exp: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """torch's kernel takes dS = P * (dP - delta) with delta = rowsum(dO * O), from dO and O.

    A gradient g of the log-sum-exp adds g to dP - delta. The kernel has no place for it, so a column is
    added to what delta is made of: dO gets -g there, O gets 1, and V gets 0, which leaves dP alone.
    """
    group = saved.q.shape[1] // saved.k.shape[1]
    k, v, output = for_each_head(saved.k, group), for_each_head(saved.v, group), saved.output
    q, width = saved.q, saved.q.shape[-1]
    if grad_log_sum_exp is not None:
        extra = -grad_log_sum_exp.to(grad_output.dtype).unsqueeze(-1)
        grad_output = torch.cat([grad_output, extra], -1)
        output = torch.cat([output, torch.ones_like(extra)], -1)
        q, k, v = (torch.nn.functional.pad(t, (0, 1)) for t in (q, k, v))
    grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        *map(readable, (grad_output, q, k, v, output)),
        saved.log_sum_exp,
        0.0,
        saved.causal,
        scale=saved.scale,
    )
    grad_q, grad_k, grad_v = (g[..., :width] for g in grads)
    return grad_q, summed_over_group(grad_k, group), summed_over_group(grad_v, group)


def readable(tensor: Tensor) -> Tensor:
    """torch's kernel reads the last dimension as if its stride were 1, and says nothing where it is not."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def supports(problem: Problem, device: torch.device) -> str | None:
    if device.type != "cpu":
        return "torch-cpu-flash runs on the CPU only; on this device choose fa2."
    if problem.dtype not in DTYPES:
        return f"torch-cpu-flash takes {', '.join(DTYPES)}, not {problem.dtype}."
    if problem.causal and problem.queries != problem.keys:
        return "torch-cpu-flash aligns a causal mask to the top left; choose eager where queries and keys differ."
    return None


IMPLEMENTATION = Implementation(
    name="torch-cpu-flash",
    summary="FlashAttention on the CPU, tile by tile; the N x N matrix is never stored.",
    forward=forward,
    supports=supports,
    backward=backward,
)
