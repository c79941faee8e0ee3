"""What was asked of us, as data: which figure of ours, beside which peer, on which problem."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernels.problem import Problem


@dataclass(frozen=True)
class ViewerTarget:
    """ours <= factor * peer's, in one column, on one kind of device; `sizes` None means at each."""

    column: str
    ours: str
    peer: str
    factor: float
    device: str = "cpu"
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class KernelTarget:
    """On a GPU: ours <= factor * the peer's of the same problem, or ours <= limit_us where no peer is named.

    It is judged on every problem that has the values in `where` (fields of `Problem`).
    """

    ours: str
    direction: str
    peer: str = ""
    factor: float = 1.0
    limit_us: float = 0.0
    where: tuple[tuple[str, object], ...] = ()
    peer_direction: str = ""  # "" for the same

    def covers(self, problem: Problem) -> bool:
        return all(getattr(problem, name) == value for name, value in self.where)


def square(batch: int, heads: int, tokens: int, head_dim: int, causal: bool = False) -> Problem:
    """As many keys as queries, in the dtype of the GPU's rows."""
    return Problem(batch, heads, tokens, tokens, head_dim, "bfloat16", causal)


def sizes_of(problem: Problem) -> tuple[tuple[str, object], ...]:
    """A target's `where` for this problem alone."""
    names = ("batch", "heads", "queries", "keys", "head_dim", "causal")
    return tuple((name, getattr(problem, name)) for name in names)


def ahead(
    ours: str, problem: Problem, peer: str, factor: float, direction: str = "forward"
) -> KernelTarget:
    """At this problem, ours is at least `factor` times as fast as the peer."""
    return KernelTarget(ours, direction, peer, 1 / factor, where=sizes_of(problem))


# What issue 3 asks of the forward and of the backward pass on an H200.
FORWARD_TARGETS = (
    KernelTarget("fa2", "forward", "sdpa-cudnn", 1.0, where=(("head_dim", 64),)),
    KernelTarget("fa2", "forward", "sdpa-cudnn", 1 / 0.82, where=(("head_dim", 128),)),
    KernelTarget(
        "fa2", "forward", limit_us=5.0, where=(("batch", 1), ("heads", 12), ("queries", 197))
    ),
    KernelTarget(
        "fa2", "forward", limit_us=46.0, where=(("batch", 64), ("heads", 12), ("queries", 197))
    ),
)
BACKWARD_TARGETS = (
    KernelTarget("fa2", "backward", "sdpa-flash", 1 / 1.2),
    KernelTarget("fa2", "backward", "sdpa-cudnn", 1 / 0.8, where=(("head_dim", 64),)),
)
# What issue 6 asks of fa3 on an H200, the peers beside it in the same rounds.
LONG_64, LONG_128 = square(1, 16, 16384, 64), square(1, 16, 16384, 128)
HOPPER_TARGETS = (
    ahead("fa3", LONG_64, "flash-attn-4", 1.05),
    ahead("fa3", square(1, 6, 21905, 64), "flash-attn-4", 1.05),
    ahead("fa3", square(1, 6, 5477, 64), "flash-attn-4", 1.15),
    ahead("fa3", square(1, 6, 5477, 64), "sdpa-cudnn", 1.15),
    ahead("fa3", square(16, 6, 1370, 64), "flash-attn-4", 1.08),
    ahead("fa3", square(16, 6, 1370, 64), "sdpa-cudnn", 1.08),
    ahead("fa3", LONG_128, "flash-attn-4", 1.03),
    ahead("fa3", square(4, 16, 4096, 128), "flash-attn-4", 1.03),
    ahead("fa3", replace(LONG_64, causal=True), "flash-attn-4", 1.0),
    ahead("fa3", replace(LONG_128, causal=True), "flash-attn-4", 1.0),
    KernelTarget("fa3", "forward", limit_us=32.0, where=sizes_of(square(64, 12, 197, 64))),
    KernelTarget("fa3", "forward", limit_us=4.0, where=sizes_of(square(1, 12, 197, 64))),
)
HOPPER_BACKWARD_TARGETS = tuple(
    ahead("fa3", problem, peer, factor, "backward")
    for problem in (LONG_64, LONG_128)
    for peer, factor in (("flash-attn-4", 0.95), ("sdpa-cudnn", 1.0))
)
REBUILD_TARGETS = (
    KernelTarget("one-row", "rebuild", limit_us=200.0, where=(("queries", 21905),)),
    KernelTarget("product", "rebuild", "fa2", 1.0, peer_direction="forward"),
)
