# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""What our Gluon kernels for Hopper (sm_90) share: descriptors for TMA, rings of tiles, named barriers.

Gluon is compiled only: nothing here runs in Triton's interpreter. Whether a kernel can run is asked of
`kernels.hopper_reason`, which needs no Triton.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.watch import note

__all__ = [
    "FIRST_BARRIER",
    "GLUON_DTYPES",
    "TensorDescriptor",
    "arrive_at",
    "arrive_at_if",
    "copyable",
    "describe",
    "fence_async_shared",
    "gl",
    "gluon",
    "launch",
    "mbarrier",
    "multiprocessors",
    "parity",
    "score_layout",
    "shared_layout",
    "tma",
    "wait_at",
    "wait_at_if",
    "warpgroup_mma",
    "warpgroup_mma_wait",
]

FIRST_BARRIER = gl.constexpr(8)
"""Named barriers 8 to 15 are ours; Triton takes the low ones, one for each group of warps."""

GLUON_DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}

STEP_BYTES = 16
"""TMA reads rows that begin at multiples of this."""


# --- host --------------------------------------------------------------------------------------------------


@cache
def shared_layout(rows: int, width: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """How a tile [1, 1, rows, width] lies in shared memory, as TMA writes it and wgmma reads it."""
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, width], GLUON_DTYPES[dtype])


def describe(tensor: Tensor, rows: int, width: int) -> TensorDescriptor:
    """A TMA descriptor of [batch, heads, tokens, head_dim] that copies tiles [1, 1, rows, width].

    What lies outside of the tensor is read as zero and never written, so a tile may reach past the last token
    and past head_dim, and no other head is touched. `copyable` makes the tensor fit for it.
    """
    descriptor = copy(
        checked_descriptor(tensor.shape, tensor.stride(), rows, width, tensor.dtype, tensor.device)
    )
    descriptor.base = tensor
    return descriptor


@lru_cache(maxsize=1024)
def checked_descriptor(
    shape: torch.Size,
    strides: tuple[int, ...],
    rows: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> TensorDescriptor:
    """The same without its tensor: what takes time, and is checked, depends on the shape only."""
    steps = [
        stride if size > 1 else shape[-1] * STEP_BYTES  # of one: any multiple of 16 bytes
        for size, stride in zip(shape[:-1], strides[:-1], strict=True)
    ]
    layout = shared_layout(rows, width, dtype)
    nothing = torch.empty(0, dtype=dtype, device=device)
    return TensorDescriptor(nothing, list(shape), [*steps, 1], [1, 1, rows, width], layout)


LAUNCHED: dict[Hashable, Any] = {}


def launch(kernel: Any, key: tuple, programs: int, *arguments: Any, **options: Any) -> None:
    """Launch so many programs, from the second launch of a `key` on without searching for the binary.

    Triton's search takes 100 us where descriptors are among the arguments. key: all that the binary depends on,
    its device last; integers and pointers must not be specialized, and constants stand among the arguments.
    """
    place = (kernel.fn, *key)
    known = LAUNCHED.get(place)
    if known is None:
        known = kernel[(programs,)](*arguments, **options)
        if key[-1].type == "cuda":
            LAUNCHED[place] = known
    else:
        known[programs, 1, 1](*arguments)
    note(kernel, known, programs, arguments, options)


@cache
def multiprocessors(device: torch.device) -> int:
    """132 on an H100 or H200, and where a kernel is only compiled."""
    if device.type != "cuda":
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


def copyable(tensor: Tensor) -> Tensor:
    """The same values where TMA can read them; copied only where it cannot.

    It wants the last dimension contiguous, and rows, heads and batches at multiples of 16 bytes, each further
    on than the last: one head seen by several through stride 0 is copied out.
    """
    size = tensor.element_size()
    steps = [s * size for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]
    contiguous = tensor.stride(-1) == 1 or tensor.shape[-1] == 1
    if contiguous and tensor.shape[-1] > 1:
        steps = steps[:-1]
    aligned = tensor.data_ptr() % STEP_BYTES == 0 and all(
        s > 0 and s % STEP_BYTES == 0 for s in steps
    )
    return tensor if contiguous and aligned else tensor.clone(memory_format=torch.contiguous_format)


# --- device ------------------------------------------------------------------------------------------------


@gluon.constexpr_function
def score_layout(width, warps=4):
    """How wgmma holds a [16 * warps, width] product: a thread has parts of two rows, four threads a row."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[warps, 1], instr_shape=[16, width, 16]
    )


@gluon.jit
def parity(index, STAGES: gl.constexpr):
    """Which phase of its mbarrier the `index`-th tile of a ring of STAGES belongs to."""
    return (index // STAGES) & 1


@gluon.jit
def wait_at(barrier, THREADS: gl.constexpr):
    """Wait at a named barrier until THREADS threads have come, those that only `arrive_at` it included."""
    gl.inline_asm_elementwise(
        "bar.sync $1, $2; mov.u32 $0, 0;", "=r,r,n", [barrier, THREADS],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def arrive_at(barrier, THREADS: gl.constexpr):
    """Be counted at a named barrier and go on. Unlike `mbarrier.arrive` this holds no other warp up."""
    gl.inline_asm_elementwise(
        "bar.arrive $1, $2; mov.u32 $0, 0;", "=r,r,n", [barrier, THREADS],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def wait_at_if(condition, barrier, THREADS: gl.constexpr):
    """`wait_at`, where the condition holds; without a branch, which would cut the compiler's schedule."""
    gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.u32 p, $1, 0; @p bar.sync $2, $3; mov.u32 $0, 0; }", "=r,r,r,n",
        [condition.to(gl.int32), barrier, THREADS], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def arrive_at_if(condition, barrier, THREADS: gl.constexpr):
    """`arrive_at`, where the condition holds."""
    gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.u32 p, $1, 0; @p bar.arrive $2, $3; mov.u32 $0, 0; }", "=r,r,r,n",
        [condition.to(gl.int32), barrier, THREADS], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip
