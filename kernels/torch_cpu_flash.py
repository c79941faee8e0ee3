"""FlashAttention on the CPU: torch's own tiled kernel, with the log-sum-exp that it returns."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.implementation import Implementation
from kernels.problem import Problem

DTYPES = ("float32", "float16", "bfloat16")


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v)) if group > 1 else (k, v)
    # torch's kernel reads the last dimension as if its stride were 1, and says nothing where it is not.
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, log_sum_exp = flash(q, k, v, 0.0, causal, scale=scale)
    return output, log_sum_exp.float()


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
)
