"""What can go wrong between processes, each in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


class LostRank(RuntimeError):
    """Another process ended, or did not come to a meeting before the group's time limit."""


@contextmanager
def meeting(what: str) -> Iterator[None]:
    """Turn the backend's own error in a collective or a transfer into a sentence.

    gloo raises it, at once where a process has died and at the group's time limit where it is only late.
    NCCL's watchdog ends the process at that limit instead, unless TORCH_NCCL_BLOCKING_WAIT=1 is set.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as fault:
        reason = (str(fault).strip() or type(fault).__name__).splitlines()[0]
        raise LostRank(
            f"another rank ended or did not {what} within the group's time limit ({reason[:200]}); "
            "look at its own message, or give init_process_group a longer timeout"
        ) from fault


def check_group(group: dist.ProcessGroup | None) -> None:
    """Check that this process may meet others in the group.

    Raises:
        ValueError: there is no group yet, or this process is not in it.
    """
    if not dist.is_available():
        raise ValueError("this build of torch has no torch.distributed; install one that has it")
    if not dist.is_initialized():
        raise ValueError(
            "there is no process group; start with torchrun and call "
            "torch.distributed.init_process_group first"
        )
    if dist.get_rank(group) < 0:
        raise ValueError(f"rank {dist.get_rank()} is not in this group; let only its ranks call")


def backend_device(group: dist.ProcessGroup | None) -> torch.device:
    """Where this group's small messages live: NCCL moves GPU memory only."""
    if "nccl" in dist.get_backend(group):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def reason_against_device(device: torch.device, group: dist.ProcessGroup | None) -> str | None:
    """None, or why this group cannot move tensors of this device."""
    backend = dist.get_backend(group)
    if backend == "gloo" and device.type != "cpu":
        return "gloo passes keys between CPUs only; for GPUs choose the backend nccl"
    if backend == "nccl" and device.type != "cuda":
        return "nccl passes keys between GPUs only; for CPUs choose the backend gloo"
    return None
