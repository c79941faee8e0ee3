"""The numbers in the article, each with how it was got. No Streamlit, so that a test can read them.

Sizes come from this machine's GPU, or from the recorded H200 where there is none.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from app.controls.cost_chip import Chip, number_bytes
from app.figures.memories import Memory
from app.memory import in_words
from app.text.why import AT_ONCE, LAST_WAVE, LOOPS, MEMORY, NOT
from kernels import Problem
from kernels.bench.recorded import recorded_roofs
from kernels.traffic import formula
from kernels.traffic.roofs import H200_ON_CHIP

H200 = "NVIDIA H200"
H200_HBM_BYTES = 141 * 10**9
"""Data sheet of the NVIDIA H200 SXM."""

BYTES_A_CLOCK = 128
"""Of one multiprocessor's shared memory: 32 banks of 4 bytes. CUDA C++ Programming Guide, compute capability 5.x
and later."""

H200_CLOCK_HZ = 1.356e9
"""Recorded on an NVIDIA H200 while the FlashAttention-2 kernel ran: kernels/bench/results/counters.csv."""

KERNELS = ("naive", "fa1", "fa2")

H100_OPERATIONS, H100_EXPONENTIALS = 989e12, 3.9e12
"""A second, of an H100 SXM: float16 on the matrix units, and exponentials. Shah et al. 2024, section 3.1."""

FA3_ROWS = 192
"""Queries of a program of fa3: three groups of warps with 64 each."""


def memory_levels(chip: Chip, hbm_bytes: int | None) -> tuple[Memory, ...]:
    """SRAM, L2 and HBM. hbm_bytes: of this machine's GPU, or None where there is none."""
    sizes = chip.sizes
    tag = MEMORY["here" if chip.here else "recorded"]
    sram = MEMORY["sram_size"].format(
        one=in_words(sizes.sram_bytes_per_sm),
        count=sizes.sms,
        all=in_words(sizes.sram_bytes_per_sm * sizes.sms),
    )
    l2 = MEMORY["l2_size"].format(l2=in_words(sizes.l2_bytes))
    hbm = MEMORY["hbm_size"].format(hbm=in_words(hbm_bytes or H200_HBM_BYTES))
    hbm_tag = MEMORY["data_sheet"] if hbm_bytes is None else tag
    return (
        Memory(MEMORY["sram"], sram, tag, MEMORY["sram_holds"]),
        Memory(MEMORY["l2"], l2, tag, MEMORY["l2_holds"]),
        Memory(MEMORY["hbm"], hbm, hbm_tag, MEMORY["hbm_holds"]),
    )


def hbm_bytes(device: torch.device) -> int | None:
    """All of the memory of this machine's GPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def rates() -> str | None:
    """How fast HBM and SRAM of the recorded GPU are; None where the record is missing."""
    roofs = recorded_roofs(H200)
    if roofs is None:
        return None
    sram = H200_ON_CHIP.sms * BYTES_A_CLOCK * H200_CLOCK_HZ
    return MEMORY["rates"].format(
        hbm_rate=f"{roofs.bytes_per_s / 1e12:.1f} TB/s",
        sram_rate=f"{sram / 1e12:.0f} TB/s",
        count=H200_ON_CHIP.sms,
        clock=f"{H200_CLOCK_HZ / 1e9:.2f} GHz",
    )


def yours(problem: Problem, chip: Chip) -> str:
    """What one head of the picture on the screen needs."""
    size = number_bytes(problem)
    matrix = problem.queries * problem.keys * size
    fits = matrix <= chip.sizes.sram_bytes_per_sm
    return MEMORY["yours"].format(
        tokens=f"{problem.queries:,}",
        inputs=in_words((problem.queries + 2 * problem.keys) * problem.head_dim * size),
        matrix=in_words(matrix),
        dtype=problem.dtype,
        fits=MEMORY["would_fit" if fits else "too_large"],
    )


def overflow(dtype: type[np.floating]) -> str:
    """About the x from which e^x is more than the largest number of a type."""
    return f"{math.log(float(np.finfo(dtype).max)):.1f}"


def head_bytes(problem: Problem) -> list[dict[str, str]]:
    """A line of the table for each kernel: what one head asks for, by formula."""
    one = Problem(1, 1, problem.queries, problem.keys, problem.head_dim, problem.dtype)
    lines = []
    for name in KERNELS:
        traffic = formula(one, name)
        lines.append(
            {
                LOOPS["kernel"]: LOOPS[name],
                LOOPS["read"]: in_words(traffic.bytes_read),
                LOOPS["written"]: in_words(traffic.bytes_written),
            }
        )
    return lines


def exponentials(problem: Problem) -> str:
    """What the exponentials would add to the products, one after the other."""
    operations = 4 * problem.head_dim
    share = H100_OPERATIONS / H100_EXPONENTIALS / operations
    return AT_ONCE["why"].format(
        d=problem.head_dim, operations=operations, share=f"{100 * share:.0f} %"
    )


def waves(problem: Problem, chip: Chip) -> str:
    """How full the last wave of this picture's tiles is."""
    tiles = problem.batch * problem.heads * -(-problem.queries // FA3_ROWS)
    count, sms = -(-tiles // chip.sizes.sms), chip.sizes.sms
    last = f"{100 * (tiles - (count - 1) * sms) / sms:.0f} %"
    return LAST_WAVE["yours"].format(
        heads=problem.heads,
        tiles=tiles,
        rows=FA3_ROWS,
        gpu=LOOPS["this_gpu" if chip.here else "recorded_gpu"],
        sms=sms,
        waves=LAST_WAVE["one_wave" if count == 1 else "waves"].format(count=count, share=last),
    )


def law(problem: Problem, chip: Chip) -> str:
    """d^2 / M with this chip's M. Dao et al. 2022, theorem 2, which speaks of d <= M <= N d."""
    numbers = chip.sizes.sram_bytes_per_sm // number_bytes(problem)
    ratio = problem.head_dim**2 / numbers
    return NOT["law"].format(
        d=problem.head_dim,
        m=f"{numbers:,}",
        sram=in_words(chip.sizes.sram_bytes_per_sm),
        dtype=problem.dtype,
        ratio=f"{ratio:.2g}",
        factor=f"{1 / ratio:.0f}",
        tokens=f"{math.ceil(numbers / problem.head_dim):,}",
    )
