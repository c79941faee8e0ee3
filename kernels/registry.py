"""Every implementation, one line each, imported only when it is asked for."""

from __future__ import annotations

import importlib
from functools import cache

import torch

from kernels.implementation import Implementation
from kernels.problem import Problem

IMPLEMENTATIONS = {
    "eager": "kernels.eager",
    "torch-cpu-flash": "kernels.torch_cpu_flash",
    "naive": "kernels.naive",
    "fa1": "kernels.fa1",
    "fa2": "kernels.fa2",
    "fa3": "kernels.fa3",
    # Peers: other people's kernels, here to compare ours with.
    "sdpa-flash": "kernels.peers.sdpa_flash",
    "sdpa-cudnn": "kernels.peers.sdpa_cudnn",
    "sdpa-efficient": "kernels.peers.sdpa_efficient",
    "flex": "kernels.peers.flex",
    "flash-attn-2": "kernels.peers.flash_attn_2",
    "flash-attn-3": "kernels.peers.flash_attn_3",
    "flash-attn-4": "kernels.peers.flash_attn_4",
}

AUTO = {
    "cuda": ("fa3", "fa2", "eager"),
    "cpu": ("torch-cpu-flash", "eager"),
}
"""What "auto" takes on each kind of device: the first that supports the problem and is worth it there."""

SMALL = Problem(batch=1, heads=1, queries=16, keys=16, head_dim=64)


@cache
def load(name: str) -> Implementation:
    """The implementation of this name.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise ValueError(f"implementation {name!r} is not known; choose auto, {known}")
    return importlib.import_module(IMPLEMENTATIONS[name]).IMPLEMENTATION


def choose(problem: Problem, device: torch.device | str) -> str:
    """The name that implementation="auto" stands for here, so that it can be shown."""
    device = torch.device(device)
    names = AUTO.get(device.type, ("eager",))
    return next((name for name in names if takes(load(name), problem, device)), "eager")


def takes(chosen: Implementation, problem: Problem, device: torch.device) -> bool:
    """Whether "auto" may stand for this one here."""
    worth = chosen.worth is None or chosen.worth(problem)
    return worth and chosen.supports(problem, device) is None


def implementations(problem: Problem = SMALL) -> dict[str, str | None]:
    """name -> None where it runs on this machine, or the sentence saying why not."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reasons = {}
    for name in IMPLEMENTATIONS:
        on_device = load(name).supports(problem, device)
        on_cpu = load(name).supports(problem, torch.device("cpu"))
        reasons[name] = None if None in (on_device, on_cpu) else on_device
    return reasons
