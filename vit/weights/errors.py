"""What a checkpoint that cannot be used raises."""

from __future__ import annotations


class WeightsError(RuntimeError):
    """A checkpoint that cannot be used; the message is one sentence that says what to do."""
