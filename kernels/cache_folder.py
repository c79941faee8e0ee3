"""Where this user's files are kept that can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """FLASHLENS_CACHE, or this system's place for such files; read at each call, not made.

    Raises:
        RuntimeError: FLASHLENS_CACHE is not set and this user has no home folder.
    """
    chosen = os.environ.get("FLASHLENS_CACHE")
    return Path(chosen).expanduser() if chosen else system_folder() / "flashlens"


def system_folder() -> Path:
    """The folder for caches of this user on this system."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    # The XDG specification: a relative path is invalid and must be ignored.
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return chosen if chosen.is_absolute() else Path.home() / ".cache"
