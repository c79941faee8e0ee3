"""Why a kernel made for Hopper cannot run a problem here. Asked without Triton, before anything is imported."""

from __future__ import annotations

import importlib.util

import torch

from kernels.problem import Problem

DTYPES = ("float16", "bfloat16")
STEP = 8
"""TMA copies rows of whole 16 bytes."""


def reason_against(
    problem: Problem, device: torch.device, name: str, max_head_dim: int = 256
) -> str | None:
    """None, or one sentence saying why the kernel `name` cannot run this problem on this device."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; it comes with requirements.txt on Linux."
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"{name} needs an NVIDIA H100 or H200; on other machines choose fa2."
    capability = torch.cuda.get_device_capability(device)
    if capability != (9, 0):
        major, minor = capability
        return f"{name} is made for compute capability 9.0 (H100, H200), not {major}.{minor}; choose fa2."
    return reason_against_problem(problem, name, max_head_dim)


def reason_against_problem(problem: Problem, name: str, max_head_dim: int) -> str | None:
    """What TMA, wgmma and shared memory do not take."""
    if problem.dtype not in DTYPES:
        return f"{name} multiplies float16 and bfloat16, not {problem.dtype}; choose fa2."
    if problem.head_dim % STEP:
        return f"{name} copies 16 bytes at a time: head_dim must be a multiple of {STEP}, not {problem.head_dim}."
    if problem.head_dim > max_head_dim:
        return f"{name} holds a head of at most {max_head_dim} dimensions on chip, not {problem.head_dim}."
    return None
