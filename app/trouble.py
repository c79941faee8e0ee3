"""Faults that the visitor can do something about. Each carries one sentence for the screen."""

from __future__ import annotations

import gc

import torch

from app.text import en
from kernels.trace import TraceError
from vit.image import ImageError
from vit.weights import WeightsError


class Trouble(RuntimeError):
    """One sentence that says what happened and what to do."""


class TooLarge(Trouble):
    """This size does not fit into this machine's memory."""


def sentence_of(fault: Exception) -> str | None:
    """The sentence that a fault carries for the screen, or None if it was not foreseen."""
    if isinstance(fault, Trouble | ImageError | WeightsError | TraceError):
        return str(fault)
    if is_out_of_memory(fault):
        return en.TROUBLE["out_of_memory"]
    return None


def is_out_of_memory(fault: Exception) -> bool:
    """Torch has a class for it on a GPU; on a CPU, a RuntimeError that names its allocator."""
    if isinstance(fault, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(fault, RuntimeError) and "DefaultCPUAllocator" in str(fault)


def release_memory() -> None:
    """Give back what a run that failed had taken. Call it outside the except block."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
