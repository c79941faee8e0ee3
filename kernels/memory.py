"""What memory this machine has free, and how an amount of it is said."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch


def available_bytes(device: torch.device) -> int:
    """Memory that is free for more work."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free, left = psutil.virtual_memory().available, free_in_container()
    return free if left is None else min(free, left)


def free_in_container() -> int | None:
    """What is left of a container's limit; files that the kernel could drop count as free."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text("ascii").strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text("ascii"))
        parts = dict(
            line.split() for line in (group / "memory.stat").read_text("ascii").splitlines()
        )
        return int(limit) - used + int(parts.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


def in_words(nbytes: float) -> str:
    """1370 -> "1.4 kB"; decimal units, as memory is sold."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            amount = nbytes / size
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{nbytes:.0f} bytes"
