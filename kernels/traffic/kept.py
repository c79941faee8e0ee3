"""Measurements kept on disk, and the line in which they wait: one at a time on this machine."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernels.cache_folder import cache_folder
from kernels.traffic.ncu import CountersError

FORMAT_VERSION = 1
"""Part of every key; raise it when what is kept gets another meaning."""

KERNELS = Path(__file__).parents[1]
IN_THIS_PROCESS = threading.Lock()

Key = Mapping[str, Any]
"""All that a measurement depends on, as JSON has it."""


def folder() -> Path | None:
    """Where measurements are kept, made if need be; None where this user may write nowhere."""
    try:
        found = cache_folder() / "traffic"
        found.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return found


def source_hash() -> str:
    """sha256 over every module of `kernels`: any of them could change what is launched."""
    total = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        total.update(f"{path.relative_to(KERNELS)}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def path_of(key: Key) -> Path | None:
    place = folder()
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return place / f"{name[:32]}.json" if place else None


def read(key: Key) -> dict[str, Any] | None:
    """What was kept under this key, or None where there is nothing, or nothing whole."""
    path = path_of(key)
    try:
        found = json.loads(path.read_text()) if path else None
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("key") != key:
        return None
    values = found.get("values")
    return values if isinstance(values, dict) else None


def write(key: Key, values: Mapping[str, Any]) -> None:
    """Keep it, in one step, so that nobody reads half a file. A full disk costs the next one a measurement."""
    path = path_of(key)
    if path is None:
        return
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_text(json.dumps({"key": key, "values": values}))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)


@contextmanager
def in_line(patience_s: float) -> Iterator[None]:
    """Wait until nobody else measures, in this process or in another one of this user.

    Raises:
        CountersError: it took longer than this.
    """
    until = time.monotonic() + patience_s
    if not IN_THIS_PROCESS.acquire(timeout=patience_s):
        raise taken()
    try:
        with among_processes(until):
            yield
    finally:
        IN_THIS_PROCESS.release()


@contextmanager
def among_processes(until: float) -> Iterator[None]:
    """A lock on a file, which the system frees even if we are killed. Without a folder or on Windows, none."""
    place = folder()
    if place is None or sys.platform == "win32":
        yield
        return
    import fcntl

    with (place / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise taken() from None
                time.sleep(0.1)
        yield


def taken() -> CountersError:
    return CountersError(
        "busy", "Another measurement is still running on this machine; try again when it has ended."
    )
