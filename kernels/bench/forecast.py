"""What memory one call will take, by formula, and the sentence for what will not fit.

The formulas follow the tensors that each implementation makes, in the order in which it makes them;
a test holds them against what a process really took. Bytes throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.eager import MOST_SCORES
from kernels.memory import in_words
from kernels.naive.tile_sizes import stored_columns
from kernels.problem import Problem
from kernels.registry import AUTO
from kernels.traffic import loops_fa3, loops_fa3_backward
from kernels.traffic.sizes import Sizes as TiledSizes


@dataclass(frozen=True)
class Sizes:
    """Bytes of the tensors of a problem. "Wide" is float32, 4 bytes a number."""

    problem: Problem

    @property
    def number(self) -> int:
        """Of one number of q, k, v."""
        return getattr(torch, self.problem.dtype).itemsize

    @property
    def rows(self) -> int:
        """How many rows P has, all heads together; not bytes."""
        return self.problem.batch * self.problem.heads * self.problem.queries

    @property
    def queries(self) -> int:
        """q, and whatever is like it."""
        return self.rows * self.problem.head_dim * self.number

    @property
    def keys(self) -> int:
        """k, or v."""
        return self.keys_for_each_head // self.problem.group

    @property
    def keys_for_each_head(self) -> int:
        """k or v once for each query head."""
        p = self.problem
        return p.batch * p.heads * p.keys * p.head_dim * self.number

    @property
    def copied_keys(self) -> int:
        """What repeating shared heads costs; nothing where none is shared."""
        return self.keys_for_each_head if self.problem.group > 1 else 0

    @property
    def vector(self) -> int:
        """The log-sum-exp, or delta: one wide number a row."""
        return 4 * self.rows

    @property
    def scores(self) -> int:
        """S, or P."""
        return self.rows * self.problem.keys * self.number

    @property
    def stored_scores(self) -> int:
        """The same with the columns that naive adds."""
        return self.rows * stored_columns(self.problem.keys) * self.number

    @property
    def result(self) -> int:
        """The output and its log-sum-exp."""
        return self.queries + self.vector

    @property
    def gradients(self) -> int:
        return self.queries + 2 * self.keys

    @property
    def cpu_tile(self) -> int:
        """What a thread of torch's CPU kernel works in: a wide tile of scores, up to 256 x 512."""
        p = self.problem
        tile_queries = 256 if p.queries >= 768 else 64 if p.queries >= 192 else 32
        return 4 * min(tile_queries, p.queries) * (min(512, p.keys) + p.head_dim + 2)

    @property
    def scratch(self) -> int:
        """A wide copy of what is like q, where q itself is not wide."""
        return 0 if self.number == 4 else self.rows * self.problem.head_dim * 4


# --- the most that is alive at once, beyond what was there before -------------------------------------


def eager_forward(s: Sizes) -> int:
    """S and the scaled S; then S, P and what the log-sum-exp is worked out in, some rows at a time.

    Under a causal mask P is copied once more, where it may hold NaN.
    """
    rows_at_once = max(1, MOST_SCORES // max(s.problem.keys, 1))
    part = min(s.rows, rows_at_once) * s.problem.keys * 4
    log_sum_exp = 2 * s.scores + (part if s.number == 4 else 2 * part) + s.vector
    masked = 3 * s.scores if s.problem.causal else 2 * s.scores
    product = 2 * s.scores + s.result + s.copied_keys
    return max(2 * s.scores + s.copied_keys, masked, log_sum_exp, product)


def eager_backward(s: Sizes) -> int:
    """dP, dP - delta and dS at once, beside the gradient of V for each head."""
    return 3 * s.scores + s.keys_for_each_head + s.copied_keys + s.vector


def naive_forward(s: Sizes) -> int:
    """One matrix: P is written over S."""
    return s.stored_scores + s.result


def naive_backward(s: Sizes) -> int:
    """One more: dS is written over dP."""
    return s.stored_scores + s.gradients


def fa1_forward(s: Sizes) -> int:
    """The unfinished output, its maximum and its sum live in memory."""
    return s.result + s.scratch + 2 * s.vector


def fa1_backward(s: Sizes) -> int:
    """dQ grows in wide numbers."""
    return s.gradients + s.scratch


def fa2_forward(s: Sizes) -> int:
    return s.result


def fa2_backward(s: Sizes) -> int:
    """The gradients and delta."""
    return s.gradients + s.vector


def fa3_forward(s: Sizes) -> int:
    """The result, and the parts of tiles that are split along the keys."""
    return s.result + loops_fa3.workspace_bytes(TiledSizes.of(s.problem, "sm_90"))


def fa3_backward(s: Sizes) -> int:
    """The gradients, dQ in wide numbers too, its tiles filled up, and two numbers for each query."""
    sizes = TiledSizes.of(s.problem, "sm_90")
    if not loops_fa3_backward.in_one_pass(sizes):
        return fa2_backward(s)
    return s.gradients + loops_fa3_backward.workspace_bytes(sizes)


def cpu_flash_forward(s: Sizes) -> int:
    """Shared heads are copied; each thread has its tile."""
    return s.result + 2 * s.copied_keys + torch.get_num_threads() * s.cpu_tile


def cpu_flash_backward(s: Sizes) -> int:
    """Gradients for each query head, before those of shared heads are summed; dO copied; delta."""
    for_each_head = s.queries + 2 * s.keys_for_each_head
    shared = 2 * s.copied_keys + 2 * s.keys if s.problem.group > 1 else 0
    tiles = torch.get_num_threads() * 2 * s.cpu_tile  # of P and of dP
    return for_each_head + shared + s.queries + s.vector + tiles


def peer_backward(s: Sizes) -> int:
    """About: dQ in wide numbers beside the gradients, and delta."""
    return s.gradients + s.rows * s.problem.head_dim * 4 + s.vector


Peak = Callable[[Sizes], int]
PEAKS: dict[str, tuple[Peak, Peak]] = {
    "eager": (eager_forward, eager_backward),
    "naive": (naive_forward, naive_backward),
    "fa1": (fa1_forward, fa1_backward),
    "fa2": (fa2_forward, fa2_backward),
    "fa3": (fa3_forward, fa3_backward),
    "torch-cpu-flash": (cpu_flash_forward, cpu_flash_backward),
}
"""Name -> forward, backward. The others, all peers, store nothing but their result and wide gradients."""

KEPT: dict[str, Peak] = {"eager": lambda s: s.scores, "naive": lambda s: s.stored_scores}
"""What a forward pass leaves for its backward pass besides output and log-sum-exp."""


# --- what the app asks --------------------------------------------------------------------------------


def peak_bytes(problem: Problem, implementation: str, direction: str = "forward") -> int:
    """The most that one call holds at once beyond what was there before: the measured peak's counterpart.

    Before a forward pass, and one with its backward pass, that is the inputs; before a backward pass
    alone it is also what its forward pass left.
    """
    s = Sizes(problem)
    forward, backward = PEAKS.get(implementation, (fa2_forward, peer_backward))
    if direction == "forward":
        return forward(s)
    if direction == "backward":
        return backward(s)
    return max(forward(s), left(s, implementation) + backward(s))


def needed_bytes(problem: Problem, implementation: str, direction: str = "forward") -> int:
    """All that must fit at once: the inputs, what lies ready, and the peak beyond."""
    s = Sizes(problem)
    inputs = s.queries + 2 * s.keys
    if direction != "forward":
        inputs += s.queries  # the gradient of the output
    if direction == "backward":
        inputs += left(s, implementation)
    return inputs + peak_bytes(problem, implementation, direction)


def left(s: Sizes, implementation: str) -> int:
    """What a forward pass leaves for its backward pass."""
    kept = KEPT.get(implementation)
    return s.result + (kept(s) if kept else 0)


def refusal(
    problem: Problem, implementation: str, direction: str, device: torch.device, free_bytes: int
) -> str | None:
    """Why this will run out of memory here, and what would do, in two sentences; None where it fits."""
    needed = needed_bytes(problem, implementation, direction)
    if needed <= free_bytes:
        return None
    place = "this GPU" if device.type == "cuda" else "this machine"
    flash = AUTO.get(device.type, ("eager",))[-2:][0]  # before eager: it runs on every such device
    least = needed_bytes(problem, flash, direction)
    advice = "Take fewer tokens, heads or pictures."
    if flash != implementation and least <= free_bytes:
        advice = f"{flash} needs {in_words(least)}."
    return (
        f"{implementation} needs {in_words(needed)} here; {place} has {in_words(max(free_bytes, 0))} "
        f"free. {advice}"
    )
