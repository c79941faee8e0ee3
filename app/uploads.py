"""Visitors' pictures, kept for a while under names that nobody can guess."""

from __future__ import annotations

import secrets

from app.store import ByteStore

PREFIX = "u-"
UPLOAD_LIMIT_BYTES = 256 * 2**20
"""All visitors' uploads together. The oldest are forgotten first."""


class Uploads:
    """The bytes of uploaded files by a random name.

    The name is drawn, not computed from the picture: who has the picture cannot find the link, and
    who has no link cannot see the picture. Nothing is written to a disk.
    """

    def __init__(self, limit: int = UPLOAD_LIMIT_BYTES) -> None:
        self._store: ByteStore[bytes] = ByteStore(limit)

    def keep(self, content: bytes) -> str:
        """Keep a file and return its name."""
        name = PREFIX + secrets.token_urlsafe(18)
        self._store.put(name, content, len(content))
        return name

    def find(self, name: str) -> bytes | None:
        """The file of this name, or None once it is forgotten."""
        return self._store.get(name)


def is_upload(name: str) -> bool:
    return name.startswith(PREFIX)


def receive_in_memory(limit: int) -> None:
    """Let the web server hold files up to `limit` bytes in memory while they arrive.

    By default it writes whatever is over 1 MB to a temporary file, which would break the promise
    that the page makes, and fail on a read-only disk.
    """
    from starlette.formparsers import MultiPartParser

    MultiPartParser.spool_max_size = limit
