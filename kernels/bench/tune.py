"""Try a grid of tile sizes for one table on this GPU and print the rows that were fastest."""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache

import torch

from kernels.bench import timing
from kernels.bench.contestants import make_inputs
from kernels.bench.proof import Truth, WrongAnswer
from kernels.bench.recipes import square
from kernels.bench.record import BenchError, Row, say
from kernels.bench.run_kernels import Entry, prove, sentence, stop_if_lost
from kernels.problem import Problem
from kernels.tile_sizes import Tiles, architecture, padded

BLOCKS = (32, 64, 128, 256)
WARPS = (4, 8)
STAGES = (1, 2, 3, 4)
SCORES_PER_THREAD = (8, 128)  # fewer leave the warps idle, more leave no register for anything else
SAMPLES = 3
COMPILERS = 8


@dataclass(frozen=True)
class Tunable:
    """A table of tile sizes, and what to run to see what a row of it is worth."""

    module: str
    table: str
    entry: Entry  # contestant and direction, as in a recipe

    @property
    def rows(self) -> dict[tuple[str, int, int], Tiles]:
        """The table itself; launchers look into it at every launch."""
        return getattr(importlib.import_module(self.module), self.table)


TUNABLE = {
    "naive-pairs": Tunable("kernels.naive.tile_sizes", "PAIRS", ("naive", "forward")),
    "naive-sums": Tunable("kernels.naive.tile_sizes", "SUMS", ("naive", "forward")),
    "fa1-forward": Tunable("kernels.fa1.tile_sizes", "FORWARD", ("fa1", "forward")),
    "fa1-backward": Tunable("kernels.fa1.tile_sizes", "BACKWARD", ("fa1", "backward")),
    "fa2-forward": Tunable("kernels.fa2.tile_sizes", "FORWARD", ("fa2", "forward")),
    "fa2-backward-keys": Tunable("kernels.fa2.tile_sizes", "BACKWARD_KEYS", ("fa2", "backward")),
    "fa2-backward-queries": Tunable(
        "kernels.fa2.tile_sizes", "BACKWARD_QUERIES", ("fa2", "backward")
    ),
    "product": Tunable("kernels.recompute.tile_sizes", "PRODUCT", ("product", "rebuild")),
}


@dataclass(frozen=True)
class Candidate:
    """One row to try: everything that a compiling process must know."""

    target: str
    problem: Problem
    tiles: Tiles


def add_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("target", choices=TUNABLE, help="the table")
    one.add_argument("--head-dims", type=int, nargs="+", default=[64, 128])
    one.add_argument("--dtypes", nargs="+", default=["bfloat16"])
    one.add_argument(
        "--problems",
        nargs="+",
        default=["16,6,1370", "1,16,8192"],
        metavar="B,H,N",
        help="what the rows are judged on together: batch, heads, tokens",
    )
    one.add_argument("--causal", action="store_true")
    one.add_argument("--block-q", type=int, nargs="+", default=BLOCKS)
    one.add_argument("--block-k", type=int, nargs="+", default=BLOCKS)
    one.add_argument("--warps", type=int, nargs="+", default=WARPS)
    one.add_argument("--stages", type=int, nargs="+", default=STAGES)


def run(options: argparse.Namespace, here: dict[str, str]) -> Iterator[list[Row]]:
    """A row of results for each candidate; the fastest of each head_dim and dtype is printed at the end.

    Raises:
        BenchError: there is no GPU to tune for.
    """
    if not torch.cuda.is_available():
        raise BenchError(
            "Tile sizes are tuned on the GPU that they are for, and there is none here."
        )
    best = []
    for dtype, head_dim in itertools.product(options.dtypes, options.head_dims):
        problems = [problem_of(text, head_dim, dtype, options.causal) for text in options.problems]
        tiles = grid(options)
        precompile([Candidate(options.target, p, t) for t in tiles for p in problems])
        rows = []
        for number, one in enumerate(tiles):
            say(f"{options.target} {dtype} {head_dim}: {one}, {number + 1} of {len(tiles)}")
            rows.append(result(options.target, one, problems) | here)
            yield [rows[-1]]
        right = [r for r in rows if not r["failed"]]
        if right:
            best.append((dtype, head_dim, min(right, key=lambda r: r["time_us"])))
    for dtype, head_dim, row in best:
        sizes = ", ".join(str(row[name]) for name in asdict(Tiles(0, 0, 0, 0)))
        key = f'("{row["gpu"]}", {getattr(torch, dtype).itemsize}, {padded(head_dim)})'
        print(f"    {key}: Tiles({sizes}),  # {row['time_us']} us")


def problem_of(text: str, head_dim: int, dtype: str, causal: bool) -> Problem:
    batch, heads, tokens = map(int, text.split(","))
    return replace(square(batch, heads, tokens, head_dim, causal), dtype=dtype)


def grid(options: argparse.Namespace) -> list[Tiles]:
    """Every combination that gives each thread a sensible number of scores."""
    every = itertools.product(options.block_q, options.block_k, options.warps, options.stages)
    low, high = SCORES_PER_THREAD
    return [Tiles(*s) for s in every if low <= s[0] * s[1] / (32 * s[2]) <= high]


def precompile(candidates: Sequence[Candidate]) -> None:
    """Let some processes at once fill Triton's cache, which the timing then reads."""
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(COMPILERS, mp_context=spawn) as pool:
            list(pool.map(compile_one, candidates))
    except BrokenProcessPool:
        say("A compiling process died; the rest is compiled one by one.")


def compile_one(candidate: Candidate) -> None:
    """Launch it once, right or wrong."""
    try:
        attempt(candidate)
    except Exception as fault:  # it will fail again, and be recorded, where it is timed
        say(f"{candidate.tiles}: {sentence(fault)}")


def attempt(candidate: Candidate) -> tuple[timing.Work, int]:
    """Put the row into the table and run it -> the work, checked, and the registers that were spilled.

    Raises:
        WrongAnswer: it is not right.
        Exception: whatever the compiler says.
    """
    tunable, device = TUNABLE[candidate.target], torch.device("cuda")
    problem = candidate.problem
    key = (
        architecture(device),
        getattr(torch, problem.dtype).itemsize,
        padded(problem.head_dim),
    )
    tunable.rows[key] = candidate.tiles
    truth = truth_of(problem)
    with launches() as seen:
        work = prove(tunable.entry, truth.inputs, truth)
    ours = (candidate.tiles.warps, candidate.tiles.stages)
    spilled = [k.n_spills for k in seen if (k.metadata.num_warps, k.metadata.num_stages) == ours]
    return work, max(spilled, default=0)


@cache
def truth_of(problem: Problem) -> Truth:
    """The same for every candidate."""
    return Truth(make_inputs(problem, torch.device("cuda")))


def result(target: str, tiles: Tiles, problems: Sequence[Problem]) -> Row:
    """Times of one candidate: their geometric mean, and why it is out if it is.

    The row that was in the table before is put back.
    """
    device = torch.device("cuda")
    table, before = TUNABLE[target].rows, dict(TUNABLE[target].rows)
    times, failed, spills = [], "", 0
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            for problem in problems:
                work, spills = attempt(Candidate(target, problem, tiles))
                if spills:
                    raise WrongAnswer(f"spills {spills} registers")
                one = timing.sampler(work, device, timing.GraphMemory())
                times.append(statistics.median(one.sample() for _ in range(SAMPLES)))
    except Exception as fault:  # a compiler may raise anything; the others still count
        failed = sentence(fault)
        stop_if_lost(TUNABLE[target].entry, failed, device)
    finally:
        table.clear()
        table.update(before)
    mean = "" if failed else round(math.exp(statistics.fmean(map(math.log, times))), 3)
    first = problems[0]
    return {
        "target": target,
        "gpu": architecture(device),
        "head_dim": first.head_dim,
        "dtype": first.dtype,
        **asdict(tiles),
        "problems": " ".join(map(str, problems)),
        "time_us": mean,
        "times_us": " ".join(f"{t:.3f}" for t in times),
        "spills": spills,
        "failed": failed,
    }


@contextmanager
def launches() -> Iterator[list]:
    """The compiled kernels that are launched inside, as Triton holds them."""
    from triton.runtime.jit import JITFunction

    seen, launch = [], JITFunction.run

    def watching(kernel, *args, **options):
        seen.append(launch(kernel, *args, **options))
        return seen[-1]

    JITFunction.run = watching  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield seen
    finally:
        JITFunction.run = launch
