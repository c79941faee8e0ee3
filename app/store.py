"""A memory of bounded size: what was not used for the longest time is forgotten first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ByteStore(Generic[T]):
    """Values by key, at most `limit` bytes of them; safe to use from several threads.

    A value larger than the limit is not kept. `get` counts as use.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: T, nbytes: int) -> None:
        """Keep a value that holds `nbytes` bytes; older ones make room."""
        with self._lock:
            if key in self._values:
                self.nbytes -= self._values.pop(key)[1]
            if nbytes > self.limit:
                return
            while self.nbytes + nbytes > self.limit:
                self.forget_oldest()
            self._values[key] = (value, nbytes)
            self.nbytes += nbytes

    def forget_oldest(self) -> bool:
        """Drop the value that was not used for the longest time; False where there is none."""
        with self._lock:
            if not self._values:
                return False
            _, (_, nbytes) = self._values.popitem(last=False)
            self.nbytes -= nbytes
            return True

    def __len__(self) -> int:
        return len(self._values)
