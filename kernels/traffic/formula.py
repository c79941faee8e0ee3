"""Bytes from the loops: of our kernels exactly, of any attention at least, and the paper's law beside them."""

from __future__ import annotations

import re

import torch

from kernels.hopper_reason import reason_against_problem
from kernels.problem import Problem
from kernels.registry import load
from kernels.tile_sizes import CHOSEN, Tiles, architecture, with_tiles
from kernels.traffic import loops_fa3_backward
from kernels.traffic.ledger import DIRECTIONS, Direction, KernelTraffic, Traffic, TrafficError
from kernels.traffic.loops import LOOPS
from kernels.traffic.sizes import FLOAT32, Sizes

WITH_LOOPS = ("naive", "fa1", "fa2", "fa3")
"""Our own kernels, whose loops are known."""

MAX_HEAD_DIM = 256
"""The widest head that any of them holds on chip."""


def formula(
    problem: Problem,
    implementation: str,
    direction: Direction = "forward",
    gpu: str | None = None,
    tiles: Tiles | None = None,
) -> Traffic:
    """Bytes that the loads and stores of a kernel of ours ask for, kernel by kernel, without running it.

    Args:
        problem: of any size; what is empty launches nothing and moves nothing.
        implementation: "naive", "fa1", "fa2" or "fa3".
        direction: "backward" takes no gradient of the log-sum-exp, as in training; "forward+backward" is
            both passes one after the other.
        gpu: whose rows of the tile tables: "sm_90", "any", or None for this machine's. fa3 has one GPU's only.
        tiles: instead of any row, as under `kernels.tile_sizes.with_tiles`.

    Raises:
        TrafficError: there is no formula for it, in one sentence.
    """
    with with_tiles(tiles):
        check(problem, implementation, direction, gpu)
    if problem.empty:
        return Traffic.of("formula", ())
    sizes = Sizes.of(problem, gpu or this_gpu(), tiles)
    launches = [one for part in passes(direction) for one in LOOPS[implementation, part](sizes)]
    return Traffic.of("formula", launches)


def asked_of_l2(
    problem: Problem, implementation: str, direction: Direction = "forward", gpu: str | None = None
) -> tuple[int, int]:
    """Bytes that come to the multiprocessors, and that they send: what `measured` calls `l2_read` and `l2_written`.

    Those of `formula`, without what L2 reads for itself to add to it.

    Raises:
        TrafficError: there is no formula for it.
    """
    traffic = formula(problem, implementation, direction, gpu)
    own, sizes = 0, Sizes.of(problem, gpu or this_gpu())
    one_pass = implementation == "fa3" and "backward" in passes(direction) and not problem.empty
    if one_pass and loops_fa3_backward.in_one_pass(sizes):
        own, _ = loops_fa3_backward.shares_of_dq(sizes)
    return traffic.bytes_read - own, traffic.bytes_written


def passes(direction: str) -> list[str]:
    """The passes of a direction, in their order."""
    return direction.split("+")


def this_gpu() -> str:
    """The architecture of this machine's GPU, or "any"."""
    return architecture(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def check(problem: Problem, implementation: str, direction: str, gpu: str | None = None) -> None:
    """Raise the one sentence that stands against a formula and a count."""
    check_sizes(problem, direction)
    if implementation not in WITH_LOOPS:
        known = ", ".join(WITH_LOOPS)
        raise TrafficError(
            f"The loops of {implementation} are not ours to read; choose {known}, or measure it on a GPU."
        )
    check_hopper(problem, implementation, direction)
    if problem.head_dim > MAX_HEAD_DIM:
        raise TrafficError(
            f"{implementation} takes heads of at most {MAX_HEAD_DIM} dimensions, not {problem.head_dim}."
        )
    if gpu is not None and not re.fullmatch(r"any|sm_\d+", gpu):
        raise TrafficError(f"A GPU's tiles go by 'any' or by a name like 'sm_90', not {gpu!r}.")


def check_hopper(problem: Problem, implementation: str, direction: str) -> None:
    """The same for a kernel of one GPU; with tiles of one's own it is its twin that runs, which takes more."""
    if implementation != "fa3" or problem.empty:
        return
    if CHOSEN.get():
        if "backward" in passes(direction):
            raise TrafficError("fa3's backward pass has its own tiles only; leave them to it.")
        return
    reason = reason_against_problem(problem, implementation, MAX_HEAD_DIM)
    if reason is not None:
        raise TrafficError(reason)


def check_sizes(problem: Problem, direction: str) -> None:
    """The same for what holds of any attention."""
    if direction not in DIRECTIONS:
        raise TrafficError(f"A direction is one of {', '.join(DIRECTIONS)}, not {direction!r}.")
    if problem.dtype not in ("float32", "float16", "bfloat16"):
        raise TrafficError(f"Take float32, float16 or bfloat16, not {problem.dtype}.")
    sizes = (problem.batch, problem.heads, problem.queries, problem.keys, problem.head_dim)
    if min(sizes) < 0:
        raise TrafficError(f"No size can be negative: {problem}.")
    if problem.kv_heads and problem.heads % problem.kv_heads:
        raise TrafficError(
            f"{problem.heads} heads of queries cannot share {problem.kv_heads} heads of keys evenly."
        )


# --- any attention ----------------------------------------------------------------------------------


def stores_matrix(implementation: str) -> bool:
    """True where the whole N x N matrix goes through memory."""
    return load(implementation).forward_keeping is not None


def compulsory(problem: Problem, stores_matrix: bool, direction: Direction = "forward") -> Traffic:
    """The least that an attention must move: each step reads its operands once and writes its result once.

    With `stores_matrix` the steps are those of the textbook, with S, P, dP and dS in memory; without it a
    pass is one step. No tile is read twice, as if on-chip memory had no end. Dao et al. 2022, Algorithms 0
    and 3.
    """
    check_sizes(problem, direction)
    if problem.empty:
        return Traffic.of("formula", ())
    steps = textbook_steps(problem) if stores_matrix else fused_steps(problem)
    return Traffic.of("formula", [one for part in passes(direction) for one in steps[part]])


def bytes_of(problem: Problem) -> tuple[int, int, int, int]:
    """Bytes of one tensor like q, one like k, one N x N matrix, and one float32 number a query."""
    sizes = Sizes.of(problem, "any")
    rows = sizes.heads * sizes.queries
    keys = sizes.kv_heads * sizes.keys
    return rows * sizes.vector, keys * sizes.vector, rows * sizes.keys * sizes.bytes, rows * FLOAT32


def fused_steps(problem: Problem) -> dict[str, list[KernelTraffic]]:
    """Inputs once, results once."""
    query, key, _, number = bytes_of(problem)
    return {
        "forward": [KernelTraffic("forward", query + 2 * key, query + number)],
        # q, o and do; k and v; the log-sum-exp -> dq; dk and dv
        "backward": [KernelTraffic("backward", 3 * query + 2 * key + number, query + 2 * key)],
    }


def textbook_steps(problem: Problem) -> dict[str, list[KernelTraffic]]:
    """Every matrix to memory and back."""
    query, key, matrix, number = bytes_of(problem)
    return {
        "forward": [
            KernelTraffic("S = Q K^T", query + key, matrix),
            KernelTraffic("P = softmax(S)", matrix, matrix + number),
            KernelTraffic("O = P V", matrix + key, query),
        ],
        "backward": [
            KernelTraffic("dV = P^T dO", matrix + query, key),
            KernelTraffic("dP = dO V^T", query + key, matrix),
            KernelTraffic("dS = P (dP - delta)", 2 * matrix + 2 * query, matrix),
            KernelTraffic("dQ = dS K", matrix + key, query),
            KernelTraffic("dK = dS^T Q", matrix + query, key),
        ],
    }


def law(problem: Problem, implementation: str, sram_bytes: int) -> float:
    """Bytes of the forward pass by the paper's law, without its constant: good for slopes, not for sizes.

    Theorem 2 of Dao et al. 2022: with head width d and M numbers of on-chip memory, d <= M <= N d, standard
    attention moves Theta(N d + N^2) numbers and FlashAttention Theta(N^2 d^2 / M). N d is added to the
    second too, which changes nothing in that range and stays true above it: inputs are read once at least.
    For queries and keys of different number N^2 is their product, and N d the mean of both.

    Args:
        sram_bytes: M in bytes, of one multiprocessor.
    """
    check_sizes(problem, "forward")
    if sram_bytes <= 0:
        raise TrafficError("The law needs the size of the on-chip memory; it is above zero.")
    element = getattr(torch, problem.dtype).itemsize
    pairs = problem.queries * problem.keys
    linear = (problem.queries + problem.keys) / 2 * problem.head_dim
    numbers = (
        pairs
        if stores_matrix(implementation)
        else pairs * problem.head_dim**2 * element / sram_bytes
    )
    return problem.batch * problem.heads * (linear + numbers) * element
