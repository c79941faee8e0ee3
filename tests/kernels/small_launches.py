"""Small launches of the kernels, one family at a time, for a checker that looks at every access.

    compute-sanitizer --tool memcheck python -m tests.kernels.small_launches fa3

Prints "done" at the end. A family whose GPU is not here prints its reason instead, after "skipped: ".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import (
    Problem,
    attention,
    attention_columns,
    attention_gradient_columns,
    attention_gradient_rows,
    attention_product,
    attention_rows,
    fp8,
)
from kernels.fp8.quantized import HEAD_DIMS
from kernels.fused import layer_norm, linear_add
from kernels.hopper_reason import reason_against
from kernels.registry import load
from tests.kernels.conftest import make_tensors

SMALL = (
    Problem(1, 2, 1, 1, 64, "bfloat16"),
    Problem(1, 2, 197, 197, 64, "bfloat16"),
    Problem(1, 2, 517, 517, 64, "bfloat16"),
    Problem(1, 4, 130, 389, 64, "bfloat16", causal=True, kv_heads=2),
    Problem(1, 2, 389, 389, 128, "bfloat16"),
    Problem(1, 2, 517, 517, 128, "bfloat16", causal=True),
    Problem(1, 1, 300, 300, 72, "float16"),
    Problem(1, 1, 300, 300, 256, "float16", causal=True),
)
"""Full and ragged tiles, few keys, a mask, shared heads, widths of a tile and others."""

Launch = Callable[[torch.device], str | None]
"""device -> None, or the reason why nothing of the family runs there."""


def tensors(problem: Problem, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    return make_tensors(problem, device.type, getattr(torch, problem.dtype))


def passes(name: str) -> Launch:
    """Forward and backward pass of one implementation, wherever it has them."""

    def launch(device: torch.device) -> str | None:
        chosen = load(name)
        reason = chosen.supports(SMALL[0], device)
        if reason is not None:
            return reason
        for problem in SMALL:
            if chosen.supports(problem, device):
                continue
            backward = chosen.reason_against_backward(problem, device) is None
            q, k, v = (x.requires_grad_(backward) for x in tensors(problem, device))
            for _ in range(3):  # the third time it is launched by heart, see `kernels.repeat`
                output, lse = attention(q, k, v, causal=problem.causal, implementation=name)
                with torch.no_grad():
                    attention(q, k, v, causal=problem.causal, implementation=name)
                if backward:
                    (output.float().sum() + lse[lse.isfinite()].sum()).backward()
        return None

    return launch


def rebuild(device: torch.device) -> str | None:
    """Rows, columns and products of P, rows and columns of its gradient."""
    for problem in SMALL:
        q, k, v = tensors(problem, device)
        output, lse = attention(q, k, v, causal=problem.causal)
        rows, columns = [0, problem.queries - 1], [0, problem.keys - 1]
        attention_rows(q, k, lse, rows, causal=problem.causal)
        attention_columns(q, k, lse, columns, causal=problem.causal)
        attention_product(None, q, k, lse, causal=problem.causal)
        attention_gradient_rows(output, v, rows, problem.causal)
        attention_gradient_columns(output, v, columns, problem.causal)
    return None


def product_hopper(device: torch.device) -> str | None:
    """The product that large pictures get on Hopper, at small ones."""
    reason = reason_against(SMALL[0], device, "the product for Hopper")
    if reason is not None:
        return reason
    product = import_module("kernels.recompute.products_hopper").product
    for problem in SMALL:
        if problem.head_dim <= 128 and not problem.causal:
            q, k, v = tensors(problem, device)
            lse = attention(q, k, v)[1]
            product(None, q, k, lse, problem.head_dim**-0.5)
            product(torch.rand_like(lse), q, k, lse, problem.head_dim**-0.5)
    return None


def eight_bits(device: torch.device) -> str | None:
    """Quantise, and attention of what was quantised."""
    reason = fp8.reason(device)
    if reason is not None:
        return reason
    for problem in SMALL:
        if problem.head_dim in HEAD_DIMS:
            fp8.attention_fp8(*tensors(problem, device), causal=problem.causal)
    return None


def fused(device: torch.device) -> str | None:
    """The layers around attention."""
    for rows in (1, 197, 300):
        tokens = torch.randn(rows, 384, device=device, dtype=torch.float16)
        weight = torch.randn(384, 384, device=device, dtype=torch.float16)
        layer_norm(tokens, weight[0], weight[1], 1e-6)
        linear_add(tokens, weight, weight[0], weight[1], tokens)
    return None


@triton.jit
def read_beyond_kernel(numbers_ptr, beyond: tl.constexpr):
    """A mistake that a checker must find: it reads and writes behind the end."""
    numbers_ptr += beyond
    tl.store(numbers_ptr, tl.load(numbers_ptr) + 1)


def beyond(device: torch.device) -> str | None:
    read_beyond_kernel[(1,)](torch.zeros(4, device=device), 1 << 20)
    torch.cuda.synchronize(device)
    return None


LAUNCHES: dict[str, Launch] = {
    **{name: passes(name) for name in ("naive", "fa1", "fa2", "fa3")},
    "rebuild": rebuild,
    "product_hopper": product_hopper,
    "fp8": eight_bits,
    "fused": fused,
}
WRONG = {"beyond": beyond}


if __name__ == "__main__":
    refused = (LAUNCHES | WRONG)[sys.argv[1]](torch.device("cuda"))
    torch.cuda.synchronize()
    sys.stdout.write(f"skipped: {refused}\n" if refused else "done\n")
