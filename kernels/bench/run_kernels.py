"""Run a kernel recipe: one process, all contestants of a problem checked, then timed round by round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch._functorch.config

from kernels.bench.contestants import (
    PARTS,
    WORKS,
    Inputs,
    log_sum_exp_of,
    make_inputs,
    reason_against,
)
from kernels.bench.proof import Truth, WrongAnswer, check_part
from kernels.bench.recipes import KernelRecipe
from kernels.bench.record import BenchError, Row, problem_columns, say, significant
from kernels.bench.timing import GraphMemory, Sampler, Work, interleaved, sampler, watched
from kernels.problem import Problem
from kernels.registry import IMPLEMENTATIONS, SMALL, load

ON_CPU = ("eager", "torch-cpu-flash")
"""Who is timed on a CPU: what Triton's interpreter takes says nothing about a kernel."""

FLOPS = {"forward": 4, "backward": 10, "forward+backward": 14}
"""Per query, key and number of a head; whatever the algorithm really does. Half of it under a causal mask."""

LONGEST_LAUNCH_S = 8.0  # the memory recipe tries nothing that would take longer,
WARM_UP_S = 1.0  # and runs twice only what takes less
Entry = tuple[str, str]  # contestant, direction


@dataclass
class Outcome:
    """What is known of one contestant on one problem."""

    failed: str = ""
    peak: int | None = None
    timed_by: str = ""
    samples: Sequence[float] = ()


def run(
    recipe: KernelRecipe,
    problems: Sequence[Problem],
    names: Sequence[str],
    rounds: int,
    here: dict[str, str],
    directions: Sequence[str] | None = None,
) -> Iterator[list[Row]]:
    """The rows of one problem after another, a row for each contestant and direction."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if recipe.measures == "memory" and device.type == "cpu":
        raise BenchError(f"{recipe.name} needs an NVIDIA GPU: a CPU has no allocator to ask.")
    # Flex attention throws away what a second backward pass needs, unless it is told not to.
    torch._functorch.config.donated_buffer = False
    entries = [(name, direction) for direction in directions or recipe.directions for name in names]
    entries += [(part, "rebuild") for part in recipe.parts]
    pace: dict[Entry, float] = {}
    # Graphs are captured on a stream of one's own, so all that leads to them runs there too.
    stream = torch.cuda.Stream() if device.type == "cuda" else None
    for problem in problems:
        say(f"{recipe.name} {problem}")
        with torch.cuda.stream(stream):  # None changes nothing
            if recipe.measures == "memory":
                found = watch(problem, entries, device, pace)
            else:
                found = measure(problem, entries, rounds, device)
        yield [row(recipe, problem, entry, outcome, here) for entry, outcome in found.items()]
        if device.type == "cuda":
            torch.cuda.empty_cache()


def contestants(recipe: KernelRecipe, peers: bool, asked: Sequence[str] | None) -> list[str]:
    """Who takes part here, in the registry's order; who cannot on this kind of device is named and left out."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    names = [name for name in recipe.contestants or IMPLEMENTATIONS if name in IMPLEMENTATIONS]
    if asked:
        unknown = [name for name in asked if name not in IMPLEMENTATIONS]
        if unknown:
            raise BenchError(
                f"{unknown[0]} is not known; choose from {', '.join(IMPLEMENTATIONS)}."
            )
        names = list(asked)
    elif not peers:
        names = [name for name in names if not load(name).peer]
    if device.type == "cpu":
        return [name for name in names if name in ON_CPU]
    small = replace(SMALL, dtype="bfloat16")
    able = []
    for name in names:
        reason = load(name).supports(small, device)
        if reason is None:
            able.append(name)
        else:
            say(f"{name} is left out. {reason}")
    return able


def measure(
    problem: Problem, entries: Sequence[Entry], rounds: int, device: torch.device
) -> dict[Entry, Outcome]:
    """Check each, time those that are right, round by round."""
    inputs = make_inputs(problem, device)
    truth = Truth(inputs)
    memory = GraphMemory()
    found = {entry: Outcome() for entry in entries}
    samplers: dict[Entry, Sampler] = {}  # they hold graphs and go when this returns
    for entry, outcome in found.items():
        try:
            work = prove(entry, inputs, truth)
            outcome.peak = watched(work, device)[1]
            samplers[entry] = sampler(work, device, memory)
        except Exception as fault:  # a peer may raise anything; the others still count
            outcome.failed = sentence(fault)
            stop_if_lost(entry, outcome.failed, device)
    for entry, samples in interleaved(samplers, rounds).items():
        found[entry].samples, found[entry].timed_by = samples, samplers[entry].timed_by
    return found


def prove(entry: Entry, inputs: Inputs, truth: Truth) -> Work:
    """The work of one contestant, which has just given the right answer.

    Raises:
        WrongAnswer: it was another one, or there is none to be had.
    """
    name, direction = entry
    device = inputs.q.device
    if name in PARTS:
        check_part(name, inputs.problem, device)
        return PARTS[name](inputs, log_sum_exp_of(inputs))
    chosen = load(name)
    reason = reason_against(chosen, direction, inputs.problem, device)
    if reason is not None:
        raise WrongAnswer(reason)
    work = WORKS[direction](chosen, inputs)
    if direction == "forward":
        truth.rows.check(*work())  # pyright: ignore[reportGeneralTypeIssues]
    else:
        stores = chosen.empty_kept is not None
        truth.gradients.check(*work(), stores=stores)  # pyright: ignore[reportGeneralTypeIssues]
    return work


def watch(
    problem: Problem, entries: Sequence[Entry], device: torch.device, pace: dict[Entry, float]
) -> dict[Entry, Outcome]:
    """The allocator's peak of one launch each. `pace` keeps the seconds that each took for a score, last time.

    All time goes with the square of the tokens, so what would take too long is known and not tried. The
    backward pass is checked on the first, smallest problem; the forward pass on each, by sampled rows.
    """
    inputs = make_inputs(problem, device)
    truth = Truth(inputs)
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    found = {entry: Outcome() for entry in entries}
    for entry, outcome in found.items():
        name, direction = entry
        chosen, expected_s = load(name), scores * pace.get(entry, 0.0)
        try:
            reason = reason_against(chosen, direction, problem, device)
            if reason is None and expected_s > LONGEST_LAUNCH_S:
                reason = f"would take some {expected_s:.0f} s; not tried"
            if reason is not None:
                raise WrongAnswer(reason)
            work = WORKS[direction](chosen, inputs)
            if entry not in pace:
                prove(entry, inputs, truth)
            elif expected_s < WARM_UP_S:
                work()  # some compile for each shape, some make workspaces that stay
            torch.cuda.empty_cache()
            start = time.perf_counter()
            result, outcome.peak = watched(work, device)
            pace[entry] = (time.perf_counter() - start) / scores
            if direction == "forward":
                truth.rows.check(*result)  # pyright: ignore[reportGeneralTypeIssues]
        except Exception as fault:  # as above
            outcome.peak = None
            outcome.failed = sentence(fault)
            stop_if_lost(entry, outcome.failed, device)
    return found


def sentence(fault: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(fault, torch.OutOfMemoryError):
        return "out of memory"
    lines = str(fault).strip().splitlines()
    said = lines[0] if lines else "it says nothing"
    return said if isinstance(fault, WrongAnswer) else f"{type(fault).__name__}: {said}"[:200]


def stop_if_lost(entry: Entry, failed: str, device: torch.device) -> None:
    """A kernel that reads where it may not leaves the GPU unusable for this process: nobody else is to blame.

    Raises:
        BenchError: so it is.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as fault:
        raise BenchError(f"{' '.join(entry)} broke the GPU's context ({failed}).") from fault


def row(
    recipe: KernelRecipe, problem: Problem, entry: Entry, outcome: Outcome, here: dict[str, str]
) -> Row:
    """Median and spread; empty where nothing was timed."""
    name, direction = entry
    samples = sorted(outcome.samples)
    median = statistics.median(samples) if samples else None

    rate = tflops(problem, direction, median)

    def rounded(value: float | None) -> object:
        return "" if value is None else round(value, 3)

    found: Row = {
        "recipe": recipe.name,
        "contestant": name,
        "direction": direction,
        **problem_columns(problem),
        "time_us": rounded(median),
        "time_low_us": rounded(samples[0] if samples else None),
        "time_high_us": rounded(samples[-1] if samples else None),
        "samples": len(samples),
        "timed_by": outcome.timed_by,
        "tflops": "" if rate is None else significant(rate),
        "peak_mb": rounded(None if outcome.peak is None else outcome.peak / 1e6),
        "failed": outcome.failed,
    }
    return found | here


def tflops(problem: Problem, direction: str, time_us: float | None) -> float | None:
    """By the papers' rule; None for what is rebuilt, which is not all of the work."""
    if time_us is None or direction not in FLOPS:
        return None
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    flop = FLOPS[direction] * scores * problem.head_dim / (2 if problem.causal else 1)
    return flop / time_us / 1e6
