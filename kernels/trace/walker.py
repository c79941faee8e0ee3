"""Walk one query tile through a kernel of ours, and write out every step."""

from __future__ import annotations

from torch import Tensor

from kernels.trace.broken import check_broken
from kernels.trace.steps import TraceError, Walk


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
    """Run the real kernel on one tile of queries."""
    check_broken(broken, implementation)
    raise TraceError("The walk is not built yet.")
