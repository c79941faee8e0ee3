"""Does N x N fit into L2? The line of token counts, and the same in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from app.figures.bars import Mark, token_scale
from app.memory import in_words
from app.text.cost import CHIP
from kernels import Problem
from kernels.traffic.roofs import H200_ON_CHIP, OnChip, on_chip

ENDS = (64, 65_536)
"""Token counts at the ends of the line."""


@dataclass(frozen=True)
class Chip:
    """A GPU's memory on the chip; `here` is False for the recorded GPU, where this machine has none."""

    sizes: OnChip
    here: bool


def chip_of(device: torch.device) -> Chip:
    found = on_chip(device)
    return Chip(H200_ON_CHIP, False) if found is None else Chip(found, True)


def most_tokens(problem: Problem, l2_bytes: int) -> int:
    """The largest N for which N x N of all heads fits into L2."""
    return math.isqrt(l2_bytes // (problem.batch * problem.heads * number_bytes(problem)))


def number_bytes(problem: Problem) -> int:
    return getattr(torch, problem.dtype).itemsize


def chip_words(problem: Problem, chip: Chip) -> tuple[str, str]:
    """Whether N x N fits, and what SRAM there is besides."""
    most = most_tokens(problem, chip.sizes.l2_bytes)
    matrix = problem.batch * problem.heads * problem.queries * problem.keys * number_bytes(problem)
    fits = CHIP["fits" if problem.queries <= most else "leaves"].format(
        size=in_words(matrix),
        l2=in_words(chip.sizes.l2_bytes),
        gpu=CHIP["this_gpu" if chip.here else "recorded_gpu"],
        limit=f"{most + 1:,}",
        most=f"{most:,}",
    )
    sram = CHIP["sram"].format(sram=in_words(chip.sizes.sram_bytes_per_sm), sms=chip.sizes.sms)
    return fits, sram


def chip_scale(problem: Problem, chip: Chip) -> str:
    """The line with this picture's N on it and the place where N x N leaves L2."""
    limit = most_tokens(problem, chip.sizes.l2_bytes) + 1
    tokens = f"{problem.queries:,}"
    return token_scale(
        here=Mark(problem.queries, CHIP["here"].format(tokens=tokens)),
        limit=Mark(limit, CHIP["limit"].format(tokens=f"{limit:,}")),
        ends=ENDS,
        spoken=CHIP["spoken"].format(tokens=tokens, limit=f"{limit:,}"),
    )
