"""What the side panel knows of each implementation here: by formula, by forecast, and by measuring."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from app.controls.cost_figures import Known
from app.jobs import Job, Jobs, Request, Want
from app.memory import available_bytes
from app.text.cost import HERE
from kernels import Problem, choose
from kernels.bench.forecast import refusal
from kernels.bench.reading import Reading
from kernels.registry import IMPLEMENTATIONS, load
from kernels.traffic import Traffic, TrafficError, formula, stores_matrix
from kernels.traffic.formula import WITH_LOOPS

DIRECTION = "forward"
STORING = "naive"
"""What the others are held against: the whole matrix goes through memory."""

ON_CPU = (STORING, "fa2", "eager", "torch-cpu-flash")
"""Two pairs: Triton's kernels for the bytes, torch's own for time and memory."""

SMALLEST = Problem(1, 1, 16, 16, 64)
"""What runs anywhere, if anything does."""

WANTS: dict[str, tuple[Want, ...]] = {
    "cuda": ("time", "memory", "hbm", "energy"),
    "cpu": ("time", "memory", "counted"),
}


def usual(problem: Problem, device: torch.device) -> tuple[str, ...]:
    """What stands there before anyone has chosen: on a GPU also what "auto" takes for this picture."""
    return (STORING, choose(problem, device)) if device.type == "cuda" else ON_CPU


def timed(name: str, problem: Problem, device: torch.device) -> bool:
    """True where this machine's time of it means something; an interpreted kernel's does not."""
    if device.type == "cpu" and name in WITH_LOOPS:
        return False
    return load(name).supports(problem, device) is None


def never(name: str, device: torch.device) -> str | None:
    """Why this machine's time of it cannot be had whatever is asked; None where a Triton kernel is interpreted."""
    return load(name).supports(SMALLEST, device)


def choices(problem: Problem, device: torch.device) -> list[str]:
    """The implementations of which anything can be had here."""
    return [name for name in IMPLEMENTATIONS if name in WITH_LOOPS or timed(name, problem, device)]


@lru_cache(maxsize=1024)
def by_formula(problem: Problem, name: str) -> Traffic | None:
    if name not in WITH_LOOPS:
        return None
    try:
        return formula(problem, name, DIRECTION)
    except TrafficError:
        return None


def known(
    jobs: Jobs, job: Job | None, problem: Problem, names: Sequence[str], device: torch.device
) -> list[Known]:
    """Each implementation with its newest reading, whoever measured it, and what is known without."""
    free = available_bytes(device)
    found = []
    for name in names:
        entry = problem, name, DIRECTION
        asked = job is not None and not job.over and entry in job.request.entries
        can_time = timed(name, problem, device)
        found.append(
            Known(
                name=name,
                reading=jobs.known(*entry) or Reading(*entry),
                stores=stores_matrix(name),
                formula=by_formula(problem, name),
                predicted=refusal(problem, name, DIRECTION, device, free),
                timed=can_time,
                counters=can_time and device.type == "cuda",
                asked=asked,
            )
        )
    return found


def request(
    problem: Problem, names: Sequence[str], device: torch.device, try_anyway: bool = False
) -> Request:
    """What the button asks for."""
    entries = tuple((problem, name, DIRECTION) for name in names)
    return Request("panel", entries, WANTS[device.type], try_anyway=try_anyway)


def unfit(found: Sequence[Known]) -> bool:
    """True where one is predicted not to fit and has not been tried."""
    return any(
        one.predicted and one.timed and one.reading.time_us is None and not one.asked
        for one in found
    )


def here_words(found: Sequence[Known], problem: Problem, device: torch.device) -> list[str]:
    """Why some stand in one row only, in a line each; of those that cannot run at all, the reason."""
    interpreted = [
        one.name
        for one in found
        if not one.timed and one.name in WITH_LOOPS and never(one.name, device) is None
    ]
    bytes_only = interpreted if device.type == "cpu" else []
    time_only = [one.name for one in found if one.timed and one.name not in WITH_LOOPS]
    neither = [one.name for one in found if not one.timed and one.name not in bytes_only]
    words = []
    if bytes_only:
        words.append(HERE["bytes_only"].format(names=listed(bytes_only)))
    if time_only and device.type == "cpu":
        words.append(HERE["time_only"].format(names=listed(time_only)))
    return words + [why for name in neither if (why := load(name).supports(problem, device))]


def listed(names: Sequence[str]) -> str:
    return HERE["and"].join(names) if len(names) == 2 else ", ".join(names)
