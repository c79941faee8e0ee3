"""Calls that are made again: what one call launched, the next of its kind launches without working it out.

All that a launcher does on the host follows from sizes, strides, dtypes and settings: the tiles, the plan, what
it allocates, every argument of its launches but the addresses. So the second call of a kind is watched, and from
the third on memory is allocated, the same kernels are launched with the addresses of the new tensors, and that
is all (`kernels.by_heart`). Nothing of anybody's tensors is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import tile_sizes
from kernels.checks import default_scale

if TYPE_CHECKING:
    from kernels.by_heart import ByHeart

TRIED = ("3.6", "3.7")
"""Releases of Triton whose launcher `kernels.direct` knows how to call; with another nothing is repeated."""

MOST_KINDS = 256
"""Kinds of calls that are remembered; the one that came first is forgotten first."""

ALIGNED_BYTES = 16
"""Where a tensor begins elsewhere, Triton compiles other code, and TMA wants a copy."""

SEEN: dict[tuple, bool] = {}
"""Whether a kind of call that is not known by heart may become so, when it comes again."""

KNOWN: dict[tuple | None, ByHeart] = {}


def kind_of(tensors: Sequence[Tensor], *settings: Hashable) -> tuple | None:
    """All that tells one call from another but its addresses; None for a call that is not repeated.

    May be asked before anything is checked.
    """
    if tile_sizes.CHOSEN.get() or tile_sizes.PLAYED.get():
        return None
    kind, begins = list(settings), 0
    for tensor in tensors:
        if type(tensor) is not Tensor or not tensor.is_cuda:
            return None
        try:
            begins |= tensor.data_ptr()
        except RuntimeError:  # a tensor without memory, as torch.func hands round
            return None
        kind += tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()
    return None if begins % ALIGNED_BYTES else tuple(kind)


def repeated(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, causal: bool, implementation: str
) -> tuple[Tensor, ...] | None:
    """Output and log-sum-exp where a forward pass of this kind is known by heart; else None.

    None too where a gradient is wanted, where a compiler traces the call, and where somebody listens to launches.
    """
    # In this order: a compiler that sees what is known traces anew when more is known.
    if torch.compiler.is_compiling() or not KNOWN:
        return None
    if not (type(q) is type(k) is type(v) is Tensor and q.ndim == 4):
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None
    if scale is None:
        scale = default_scale(q)
    elif type(scale) is not float:
        return None
    known = KNOWN.get(kind_of((q, k, v), "forward", implementation, scale, causal))
    return None if known is None else known(q, k, v)


def learn(
    kind: tuple | None, call: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """What the call answers to these tensors; watched when its kind comes for the second time."""
    known = KNOWN.get(kind)
    answers = None if known is None else known(*tensors)
    if answers is not None:
        return answers
    if kind is None or not SEEN.get(kind, True) or not tried():
        return call(*tensors)
    if kind not in SEEN:
        keep(SEEN, kind, True)
        return call(*tensors)
    from kernels.by_heart import hooked, watched

    if hooked():
        return call(*tensors)
    answers, known = watched(call, tensors)
    if known is not None:
        keep(KNOWN, kind, known)
    else:
        SEEN[kind] = False
    return answers


@cache
def tried() -> bool:
    """Whether the Triton that is installed is one of those."""
    import triton

    return ".".join(triton.__version__.split(".")[:2]) in TRIED


def keep(kept: dict, kind: tuple, value: object) -> None:
    """Remember it, and forget the oldest where there are too many."""
    if len(kept) >= MOST_KINDS:
        kept.pop(next(iter(kept)), None)
    kept[kind] = value
