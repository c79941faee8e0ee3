"""How long one launch takes: replays of a CUDA graph on a GPU, torch's own benchmark on a CPU.

On a GPU the launch is captured several times over into one graph, so that a replay lasts some
milliseconds and the time that Python needs for a launch does not count; the gap of about a microsecond
between two launches does. The inputs are the same in every launch, so they are warm in L2 where they
fit, as they are in a model, where the projection before has just written them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils.benchmark import Timer

Work = Callable[[], object]
Name = TypeVar("Name")

REPLAY_US = 3000.0  # how long a replay should last
MOST_LAUNCHES = 500  # in one graph; a launch may be a dozen kernels
LEAD_IN_US = 20_000.0  # a replay shorter than this follows another one, untimed
BUDGET_US = 300_000.0  # for one contestant on one problem, all rounds together
FEWEST_SAMPLES = 3
CPU_SAMPLE_US = 20_000.0


@dataclass(frozen=True)
class Sampler:
    """Takes samples of one contestant, in microseconds a launch."""

    timed_by: str  # "graph", "events" or "benchmark"
    sample: Callable[[], float]
    sample_cost_us: float  # how long taking one lasts
    work: Work | None = (
        None  # kept, for a graph reads its tensors where they were when it was captured
    )

    def samples_in(self, rounds: int) -> int:
        """The slow ones get fewer, but never fewer than three, nor more than there are rounds."""
        affordable = int(BUDGET_US / max(self.sample_cost_us, 1.0))
        return min(rounds, max(FEWEST_SAMPLES, affordable))


class GraphMemory:
    """Memory that the graphs of one problem share: they never run at once, and nobody reads their results."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """After a capture that failed torch lets nobody else capture into the same memory."""
        self.pool: Any = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None


def sampler(work: Work, device: torch.device, memory: GraphMemory) -> Sampler:
    """The best way to time this work here.

    On a GPU call it, and everything that prepares the work, on a stream of one's own: a graph is captured
    there, and autograd runs a backward pass on the stream of its forward pass.
    """
    if device.type == "cpu":
        return by_benchmark(work)
    rough_us = max(rough_time_us(work), 1.0)
    try:
        return by_graph(work, rough_us, memory.pool)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        # It cannot be captured: it waits for the GPU inside, say. A broken GPU fails again here.
        torch.cuda.synchronize()
        memory.renew()
        return by_events(work, rough_us)


def interleaved(samplers: dict[Name, Sampler], rounds: int) -> dict[Name, list[float]]:
    """Samples of each, taken round by round, so that all see the same clocks."""
    found: dict[Name, list[float]] = {name: [] for name in samplers}
    for number in range(rounds):
        for name, one in samplers.items():
            if number < one.samples_in(rounds):
                found[name].append(one.sample())
    return found


def by_graph(work: Work, rough_us: float, pool: Any) -> Sampler:
    """The launch captured as often as a replay takes to last REPLAY_US."""
    launches = 1 if rough_us >= REPLAY_US else min(10, math.ceil(REPLAY_US / rough_us))
    replay = captured(work, launches, pool)
    time_us = elapsed_us(replay, lead_in=launches > 1) / launches
    wanted = min(MOST_LAUNCHES, math.ceil(REPLAY_US / time_us))
    if wanted > launches:
        launches = wanted
        replay = captured(work, launches, pool)
    lead_in = launches * time_us < LEAD_IN_US
    return Sampler(
        "graph",
        lambda: elapsed_us(replay, lead_in) / launches,
        launches * time_us * (2 if lead_in else 1),
        work,
    )


def by_events(work: Work, rough_us: float) -> Sampler:
    """Launch by launch, as Python makes them: below some 100 us this is Python's time, not the GPU's."""
    launches = max(1, min(MOST_LAUNCHES, int(REPLAY_US / rough_us)))

    def run() -> None:
        for _ in range(launches):
            work()

    lead_in = launches > 1
    cost_us = launches * rough_us * (2 if lead_in else 1)
    return Sampler("events", lambda: elapsed_us(run, lead_in) / launches, cost_us)


def by_benchmark(work: Work) -> Sampler:
    """torch.utils.benchmark, with every thread that torch has."""
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    rough_us = 1e6 * timer.timeit(1).median
    launches = max(1, int(CPU_SAMPLE_US / rough_us))
    cost_us = (launches + 2) * rough_us  # timeit runs the work twice before it looks at the clock
    return Sampler("benchmark", lambda: 1e6 * timer.timeit(launches).median, cost_us)


def rough_time_us(work: Work) -> float:
    """About how long a launch takes, Python's share included; also what compiles it."""
    work()
    once_us = elapsed_us(work, lead_in=False)
    if once_us > REPLAY_US:
        return once_us

    def run() -> None:
        for _ in range(3):
            work()

    return elapsed_us(run, lead_in=True) / 3


def captured(work: Work, launches: int, pool: Any) -> Work:
    """One graph of so many launches; calling the result replays it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream()):
        for _ in range(launches):
            work()
    return graph.replay


def elapsed_us(run: Work, lead_in: bool) -> float:
    """Time between two events around it on the current stream.

    The lead-in keeps the GPU busy while Python queues what is timed, and warms L2.
    """
    if lead_in:
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


def watched(work: Work, device: torch.device) -> tuple[object, int | None]:
    """What one launch gives, and the allocator's peak meanwhile, in bytes beyond what is there before.

    None where there is no allocator to ask, on a CPU.
    """
    if device.type != "cuda":
        return work(), None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = work()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before
