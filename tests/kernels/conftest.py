"""What kernel tests share: tensors for a problem, and memory that shows what nobody wrote."""

from __future__ import annotations

import zlib

import pytest
import torch
from torch import Tensor

from kernels import Problem


def make_tensors(
    problem: Problem, device: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Fresh unit-normal q, k, v; the seed follows from the problem, so a failure repeats."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{problem} {dtype}".encode()))
    kv_heads = problem.kv_heads or problem.heads
    q_shape = (problem.batch, problem.heads, problem.queries, problem.head_dim)
    kv_shape = (problem.batch, kv_heads, problem.keys, problem.head_dim)
    q, k, v = (torch.randn(s, generator=generator) for s in (q_shape, kv_shape, kv_shape))
    return q.to(device, dtype), k.to(device, dtype), v.to(device, dtype)


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what `new_empty` hands out with NaN: an element that no kernel wrote is then seen."""
    honest = torch.Tensor.new_empty

    def poisoned(self: Tensor, *args, **kwargs) -> Tensor:
        tensor = honest(self, *args, **kwargs)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
