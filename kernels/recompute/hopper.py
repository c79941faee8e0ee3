"""Which products w^T P the kernel made for Hopper takes, asked before Triton is imported."""

from __future__ import annotations

from torch import Tensor

from kernels.hopper_reason import reason_against
from kernels.problem import Problem

MAX_HEAD_DIM = 64
"""128 fits and is right, but whether it is sooner done than the kernel for every GPU was not measured."""
FEWEST_SCORES = 2**31
"""From here on it is sooner done: 6 heads of 21,905 tokens in 0.87 of the time, of 5,477 in 1.1 of it."""
STEP_BYTES = 16
"""TMA reads rows that begin at multiples of this."""


def takes(q: Tensor, k: Tensor, causal: bool) -> bool:
    """Many scores, no mask, half precision, rows where TMA can read them, and a GPU that has TMA."""
    problem = Problem.of(q, k)
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    if causal or scores < FEWEST_SCORES or not (readable(q) and readable(k)):
        return False
    return reason_against(problem, q.device, "the product for Hopper", MAX_HEAD_DIM) is None


def readable(tensor: Tensor) -> bool:
    """Whether TMA can read [batch, heads, tokens, head_dim] where it lies: nothing is copied for a product."""
    steps = [
        stride * tensor.element_size()
        for stride, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True)
        if size > 1
    ]
    contiguous = tensor.stride(-1) == 1 and tensor.data_ptr() % STEP_BYTES == 0
    return contiguous and all(step > 0 and step % STEP_BYTES == 0 for step in steps)
