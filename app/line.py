"""The line that visitors stand in: one model, one run at a time, first come first served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_S = 0.25
"""How often a visitor in the line is told the place; each telling also notices a closed tab."""


class Line:
    """A lock that is fair and that says how many are ahead."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tickets: list[object] = []
        self._at_work = 0
        self._stirred = 0

    @contextmanager
    def turn(self, waiting: Callable[[int], None] = lambda ahead: None) -> Iterator[None]:
        """Wait for the turn, and give it back however the block ends.

        `waiting(ahead)` is called with the number of visitors ahead, again and again while there
        are any. An exception raised in it leaves the line.
        """
        ticket = object()
        with self._changed:
            self._tickets.append(ticket)
        try:
            while ahead := self._ahead(ticket):
                waiting(ahead)
                with self._changed:
                    self._changed.wait_for(lambda: self._tickets[0] is ticket, timeout=POLL_S)
            with self.beside():
                yield
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                self._changed.notify_all()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Work that does not wait for a turn; it is seen in `stirred` all the same."""
        with self._changed:
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._stirred += 1

    def stirred(self) -> int:
        """A number that differs between two calls whenever work went on at any time between them."""
        with self._changed:
            self._stirred += self._at_work
            return self._stirred

    def _ahead(self, ticket: object) -> int:
        with self._changed:
            return self._tickets.index(ticket)

    def __len__(self) -> int:
        """Visitors in the line, the one whose turn it is included."""
        return len(self._tickets)
