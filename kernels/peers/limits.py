"""What other people's kernels do not take, as data, and the sentence for each."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from functools import cache

import torch

from kernels.problem import Problem
from kernels.triton_mode import reason_against_gpu

HALF = ("float16", "bfloat16")
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
STEP = 16
"""Bytes that these kernels load at once, so every row of a head must begin at a multiple of it."""

GRID = 65_535
"""The most programs that CUDA starts along the second and third axis of a grid."""


@dataclass(frozen=True)
class Limits:
    """What one kernel takes on an NVIDIA GPU of compute capability 8.0 or later."""

    name: str
    widest: int | None = None  # largest head_dim
    dtypes: tuple[str, ...] = HALF
    square_causal: bool = False  # a causal mask only where there are as many queries as keys
    grid: bool = False  # batch and heads lie along the short axes of the grid
    package: str | None = None  # the distribution that it comes with, where that is not torch
    source: str = ""  # how that package is had

    def reason(self, problem: Problem, device: torch.device) -> str | None:
        """None, or one sentence saying why this problem cannot run there, and what would help."""
        if device.type != "cuda":
            return f"{self.name} runs on an NVIDIA GPU only; on this device choose auto."
        on_this_gpu = reason_against_gpu(problem, device)
        if on_this_gpu is not None:
            return on_this_gpu
        if self.package is not None and not installed(self.package):
            return f"The package {self.package} is not installed; {self.source}."
        return self.reason_against_width(problem) or self.reason_against_shape(problem)

    def reason_against_width(self, problem: Problem) -> str | None:
        """What dtype and head_dim may be."""
        if problem.dtype not in self.dtypes:
            return (
                f"{self.name} takes {' and '.join(self.dtypes)}, not {problem.dtype}; choose fa2."
            )
        if self.widest is not None and problem.head_dim > self.widest:
            return (
                f"{self.name} takes a head of at most {self.widest} dimensions, "
                f"not {problem.head_dim}; choose fa2 or eager."
            )
        multiple = STEP // BYTES[problem.dtype]
        if problem.head_dim % multiple:
            return (
                f"{self.name} takes head_dim in multiples of {multiple} in {problem.dtype}, "
                f"not {problem.head_dim}; choose fa2, which takes any."
            )
        return None

    def reason_against_shape(self, problem: Problem) -> str | None:
        """What batch, heads and lengths may be."""
        if self.square_causal and problem.causal and problem.queries != problem.keys:
            return (
                f"{self.name} aligns a causal mask to the top left; "
                "choose fa2 where queries and keys differ."
            )
        if self.grid and max(problem.batch, problem.heads) > GRID:
            return f"{self.name} takes a batch and heads of at most {GRID:,} each; choose fa2."
        return None


@cache
def installed(package: str) -> bool:
    """Is it here? Asked of its metadata, because importing one of these packages takes seconds."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
