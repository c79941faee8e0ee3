"""What the public doors check of their arguments; each fault gets one sentence that names the argument."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def default_scale(q: Tensor) -> float:
    """1 / sqrt(head_dim), Vaswani et al. 2017, equation 1."""
    return max(q.shape[-1], 1) ** -0.5


def check_rebuild(q: Tensor, k: Tensor, lse: Tensor, scale: float | None) -> float:
    """Check what rebuilding takes, and settle the scale."""
    check_query_key(q, k)
    if not isinstance(lse, Tensor) or lse.dtype != torch.float32:
        raise TypeError("lse must be the float32 log-sum-exp that attention() returned")
    if lse.shape != q.shape[:3] or lse.device != q.device:
        raise ValueError(
            f"lse must be {list(q.shape[:3])} on {q.device} like q, not {list(lse.shape)} on {lse.device}"
        )
    return default_scale(q) if scale is None else float(scale)


def check_query_key(q: Tensor, k: Tensor, queries_side: str = "q", keys_side: str = "k") -> None:
    """Check the tensor with one row a query by itself, and the one with one row a key against it."""
    if not isinstance(q, Tensor) or q.dtype not in DTYPES:
        raise TypeError(
            f"{queries_side} must be a float32, float16 or bfloat16 tensor, not {kind(q)}"
        )
    if q.ndim != 4:
        raise ValueError(
            f"{queries_side} must be [batch, heads, queries, head_dim], not {list(q.shape)}"
        )
    if not isinstance(k, Tensor) or k.dtype != q.dtype:
        raise TypeError(
            f"{keys_side} must be a {q.dtype} tensor like {queries_side}, not {kind(k)}"
        )
    if k.device != q.device:
        raise ValueError(
            f"{keys_side} is on {k.device} but {queries_side} is on {q.device}; move them to one device"
        )
    if k.ndim != 4 or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        batch, dim = q.shape[0], q.shape[3]
        raise ValueError(
            f"{keys_side} must be [{batch}, kv_heads, keys, {dim}] to fit {queries_side}, "
            f"not {list(k.shape)}"
        )
    if q.shape[1] and (not k.shape[1] or q.shape[1] % k.shape[1]):
        raise ValueError(
            f"{keys_side} has {k.shape[1]} heads, which does not divide {queries_side}'s {q.shape[1]}"
        )


def check_weights(w: Tensor | None, q: Tensor) -> Tensor | None:
    """w seen as [batch, heads, queries], without a copy; None stays None."""
    if w is None:
        return None
    if not isinstance(w, Tensor) or w.dtype not in DTYPES:
        raise TypeError(f"w must be a float32, float16 or bfloat16 tensor or None, not {kind(w)}")
    if w.device != q.device:
        raise ValueError(f"w is on {w.device} but q is on {q.device}; move them to one device")
    wanted = q.shape[:3]
    fits = w.ndim <= 3 and all(
        have in (1, want) for have, want in zip(w.shape[::-1], wanted[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"w must be {list(wanted)}, [batch, heads, queries] of q, or broadcast to it, "
            f"not {list(w.shape)}"
        )
    return w.expand(wanted)


def kind(thing: object) -> str:
    """What an argument is, for a sentence."""
    return str(thing.dtype) if isinstance(thing, Tensor) else type(thing).__name__


def check_same(name: str, tensor: Tensor, model: Tensor) -> None:
    """Check that v is what k is."""
    if not isinstance(tensor, Tensor) or tensor.dtype != model.dtype:
        raise TypeError(f"{name} must be a {model.dtype} tensor like k, not {kind(tensor)}")
    if tensor.shape != model.shape:
        raise ValueError(
            f"{name} must have k's shape {list(model.shape)}, not {list(tensor.shape)}"
        )
    if tensor.device != model.device:
        raise ValueError(
            f"{name} is on {tensor.device} but k is on {model.device}; move them to one device"
        )


def check_index(
    name: str, index: Sequence[int] | Tensor, size: int, device: torch.device
) -> Tensor:
    """The indices as an int64 tensor on the device, each checked against the size."""
    host = torch.as_tensor(index)
    if host.numel() and (host.is_floating_point() or host.dtype == torch.bool):
        raise TypeError(f"{name} must be whole numbers, not {host.dtype}")
    if host.ndim != 1:
        raise ValueError(f"{name} must be a list of indices, not of shape {list(host.shape)}")
    if host.numel() and (int(host.min()) < 0 or int(host.max()) >= size):
        raise ValueError(
            f"{name} must lie in 0 to {size - 1}, not {int(host.min())} to {int(host.max())}"
        )
    return host.to(device, torch.int64)
