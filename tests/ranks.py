"""A few processes that meet through a file, each a rank; none of them outlives its test."""

from __future__ import annotations

import datetime
import multiprocessing
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist

START_LIMIT_S = 150
"""Until every rank has done its work, on a machine that is busy with other tests."""

Work = Callable[..., object]
"""work(rank, world, *arguments) -> what torch.save can write. A function of a module, for spawn."""


def run_ranks(
    world: int,
    work: Work,
    folder: Path,
    *arguments: object,
    meet_limit_s: float = 100,
    backend: str = "gloo",
) -> list:
    """What each rank's work returned.

    The ranks meet through a file in `folder`: no port is opened but gloo's own on this machine.

    Raises:
        AssertionError: a rank raised, died, or did not end in time; all have been killed then.
    """
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(
            target=one_rank,
            args=(rank, world, work, folder, arguments, meet_limit_s, backend),
            daemon=True,
        )
        for rank in range(world)
    ]
    try:
        for process in ranks:
            process.start()
        wait_for(ranks)
    finally:
        for process in ranks:
            if process.is_alive():
                process.kill()
            process.join()
    return [answer_of(rank, process, folder) for rank, process in enumerate(ranks)]


def wait_for(ranks: list[BaseProcess]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    for process in ranks:
        process.join(max(0.0, deadline - time.monotonic()))
    late = [rank for rank, process in enumerate(ranks) if process.exitcode is None]
    assert not late, f"ranks {late} did not end within {START_LIMIT_S} s"


def answer_of(rank: int, process: BaseProcess, folder: Path) -> object:
    path = folder / f"rank{rank}.pt"
    assert path.exists(), f"rank {rank} died with exit code {process.exitcode}"
    answer = torch.load(path, weights_only=False)
    if isinstance(answer, AssertionError):
        raise answer
    return answer


def one_rank(
    rank: int,
    world: int,
    work: Work,
    folder: Path,
    arguments: tuple,
    meet_limit_s: float,
    backend: str,
) -> None:
    """The body of a process."""
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=meet_limit_s),
    )
    try:
        answer = work(rank, world, *arguments)
    except Exception:
        answer = AssertionError(traceback.format_exc())
    unfinished = folder / f"rank{rank}.part"
    torch.save(answer, unfinished)
    unfinished.rename(folder / f"rank{rank}.pt")


def sentence_of(call: Callable[[], object]) -> str:
    """What a call was refused with: "Type: words"."""
    try:
        call()
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    return "nothing was refused"
