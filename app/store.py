"""A memory of bounded size: what was not used for the longest time is forgotten first."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

T = TypeVar("T")


class ByteStore(Generic[T]):
    """Values by key, at most `limit` bytes of them; safe to use from several threads.

    A value larger than the limit is not kept. `get` counts as use.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: LRUCache[Hashable, tuple[T, int]] = LRUCache(limit, lambda pair: pair[1])
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        return int(self._values.currsize)

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            found = self._values.get(key)
            return None if found is None else found[0]

    def put(self, key: Hashable, value: T, nbytes: int) -> None:
        """Keep a value that holds `nbytes` bytes; older ones make room."""
        with self._lock:
            self._values.pop(key, None)
            if nbytes <= self.limit:
                self._values[key] = (value, nbytes)

    def forget_oldest(self) -> bool:
        """Drop the value that was not used for the longest time; False where there is none."""
        with self._lock:
            if not self._values:
                return False
            self._values.popitem()
            return True

    def __len__(self) -> int:
        return len(self._values)
