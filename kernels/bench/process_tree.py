"""End a process with all that it started, and know that it has gone."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil

GONE_WITHIN_S = 10.0
LOOK_AGAIN_S = 0.005


def descendants(root: psutil.Process) -> list[psutil.Process]:
    """The process and all below it, each held still, so that none can start another unseen."""
    found, open_ends = [], [root]
    while open_ends:
        one = open_ends.pop()
        found.append(one)
        with suppress(psutil.Error):
            one.suspend()
        with suppress(psutil.Error):
            open_ends += one.children()
    return found


def kill_tree(pid: int, spare_root: bool = False) -> list[psutil.Process]:
    """Kill it and all below it, or all below it alone -> those that are still there: none, as a rule."""
    try:
        root = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return []
    if spare_root:
        found = [one for child in root.children() for one in descendants(child)]
    else:
        found = descendants(root)
    for one in found:
        with suppress(psutil.Error):
            one.kill()
    deadline = time.monotonic() + GONE_WITHIN_S
    while found and time.monotonic() < deadline:
        found = [one for one in found if is_alive(one)]
        if found:
            time.sleep(
                LOOK_AGAIN_S
            )  # not psutil's wait: it would take the exit code from whoever started it
    return found


def is_alive(process: psutil.Process) -> bool:
    """False also for one that has ended and that only its parent has not asked about."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
