"""Walk one query tile through a kernel of ours, with every step written out."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from kernels.checks import default_scale
from kernels.fa3 import short
from kernels.fa3.stand_in import STAND_IN
from kernels.problem import Problem
from kernels.registry import load
from kernels.tile_sizes import Tiles, with_tiles
from kernels.trace import launches
from kernels.trace.broken import check_broken
from kernels.trace.cut import Cut
from kernels.trace.steps import IN_ONE_PIECE, NOTES, TraceError, Walk
from kernels.traffic.formula import formula
from kernels.triton_mode import interprets

WALKED = ("naive", "fa1", "fa2", "fa3", "fa2-backward")
"""What can be walked."""

LARGEST_TILE = 256
"""Rows of a tile: more do not fit on any chip."""

MOST_SCORES = 2**22
"""Scores of a walk in Triton's interpreter: about ten seconds."""


def walk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    implementation: str = "fa2",
    query_tile: int = 0,
    block_q: int = 64,
    block_k: int = 64,
    broken: str | None = None,
    causal: bool = False,
    scale: float | None = None,
    *,
    grad_output: Tensor | None = None,
) -> Walk:
    """Run the real kernel on one tile of queries and keep what it holds after every tile of keys, in its order.

    On a machine without a GPU it runs in Triton's interpreter, which one thread at a time may use.

    Args:
        q, k, v: one head, [tokens, dim]; float32 or float16, on a GPU bfloat16 too.
        implementation: "naive", "fa1", "fa2", "fa2-backward": its pass that owns the queries, or "fa3": its twin in
            plain Triton, as the walk's `note` says.
        query_tile: which tile of `block_q` queries.
        broken: a name of `BROKEN` that applies to the implementation.
        scale: on the scores; None for 1 / sqrt(dim).
        grad_output: [tokens, dim], for the backward pass; None for ones.

    Raises:
        TraceError: there is no walk, in one sentence.
    """
    check(implementation, q, k, v, grad_output)
    check_broken(broken, implementation)
    check_tiles(q.shape[0], query_tile, block_q, block_k)
    scale = default_scale(q) if scale is None else float(scale)
    tiles = Tiles(block_q, block_k, warps=4 if block_q * block_k <= 4096 else 8, stages=1)
    cut = Cut.of(
        q.detach(), k.detach(), v.detach(), implementation, query_tile, tiles, scale, causal
    )
    if interprets() and cut.rows * cut.keys > MOST_SCORES:
        raise TraceError(
            f"A walk of {cut.rows} queries past {cut.keys:,} keys takes too long without a GPU; take a smaller "
            "picture, or fewer queries in a tile."
        )
    grad = None
    if implementation == "fa2-backward":
        grad = torch.ones_like(q) if grad_output is None else grad_output.detach()
        grad = grad[cut.query_start :][: cut.rows]
    with with_tiles(tiles):
        walked = run(cut, broken, grad)
    error = (walked.output.double() - cut.exact(grad)).abs().max().item()
    walk_read, walk_written = bytes_of(cut.problem, implementation, tiles)
    head_read, head_written = bytes_of(cut.whole, implementation, tiles)
    return Walk(
        implementation=implementation,
        broken=broken,
        causal=causal,
        scale=scale,
        block_q=block_q,
        block_k=block_k,
        query_start=cut.query_start,
        rows=cut.rows,
        tokens=cut.tokens,
        head_dim=cut.width,
        dtype=cut.problem.dtype,
        steps=walked.steps,
        output=walked.output,
        log_sum_exp=walked.log_sum_exp,
        largest_error=error if math.isfinite(error) else math.inf,
        formula_read=walk_read,
        formula_written=walk_written,
        head_read=head_read,
        head_written=head_written,
        bytes_source="counted" if interprets() else "formula",
        most_rise=walked.most_rise,
        note=note_of(cut),
    )


def run(cut: Cut, broken: str | None, grad_output: Tensor | None) -> launches.Walked:
    """Launch it, and read its pages."""
    if grad_output is not None:
        return launches.backward(cut, grad_output)
    # A mistake may overflow, which is what it is there to show; the interpreter would warn of it.
    with np.errstate(all="ignore" if broken else None):
        return (launches.naive if cut.implementation == "naive" else launches.flash)(cut, broken)


def note_of(cut: Cut) -> str:
    """What must be said where the walk is not the kernel's own."""
    note = NOTES.get(cut.implementation, "")
    if note and short.takes(dataclasses.replace(cut.whole, dtype="float16")):
        return f"{note} {IN_ONE_PIECE}"
    return note


def bytes_of(problem: Problem, implementation: str, tiles: Tiles) -> tuple[int, int]:
    """Bytes read and written by formula; of the backward pass those of the kernel that owns the queries."""
    if implementation != "fa2-backward":
        traffic = formula(problem, implementation, tiles=tiles)
        return traffic.bytes_read, traffic.bytes_written
    kernel = formula(problem, "fa2", "backward", tiles=tiles).detail[-1]
    return kernel.bytes_read, kernel.bytes_written


def check(implementation: str, q: Tensor, k: Tensor, v: Tensor, grad_output: Tensor | None) -> None:
    """Raise the sentence that stands against these tensors."""
    if implementation not in WALKED:
        raise TraceError(f"{implementation} has no walk; choose {', '.join(WALKED)}.")
    if grad_output is not None and implementation != "fa2-backward":
        raise TraceError("grad_output is for implementation='fa2-backward' only.")
    for name, tensor in {"q": q, "k": k, "v": v, "grad_output": grad_output}.items():
        if tensor is None and name == "grad_output":
            continue
        if not isinstance(tensor, Tensor) or tensor.ndim != 2:
            raise TraceError(f"{name} must be one head, a tensor [tokens, dim].")
        if (tensor.shape, tensor.dtype, tensor.device) != (q.shape, q.dtype, q.device):
            raise TraceError(f"{name} must have q's shape, dtype and device.")
    if not q.numel():
        raise TraceError(f"There is nothing to walk in a head of shape {list(q.shape)}.")
    small = Problem.of(q[None, None], k[None, None])
    small = dataclasses.replace(small, queries=16, keys=16)
    runs = STAND_IN if implementation == "fa3" else load(implementation.removesuffix("-backward"))
    reason = runs.supports(small, q.device)
    if reason is not None:
        raise TraceError(reason)


def check_tiles(tokens: int, query_tile: int, block_q: int, block_k: int) -> None:
    """Raise the sentence that stands against these tiles."""
    for name, block in {"block_q": block_q, "block_k": block_k}.items():
        if block < 16 or block > LARGEST_TILE or block & (block - 1):
            raise TraceError(
                f"{name} must be a power of two from 16 to {LARGEST_TILE}, not {block}."
            )
    tiles = -(-tokens // block_q)
    if not 0 <= query_tile < tiles:
        raise TraceError(f"query_tile must lie in 0 to {tiles - 1}, not {query_tile}.")
