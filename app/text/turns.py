"""The words of the drawing of two groups of warps that take turns, on the pages Tiles and How it works."""

from __future__ import annotations

TURNS = {
    "together": "Both at once",
    "in_turns": "Taking turns",
    "first": "First four warps",
    "second": "Second four warps",
    "units": "Matrix units",
    "multiply": "multiply",
    "softmax": "softmax",
    "waits": "waits",
    "of_first": "first",
    "of_second": "second",
    "of_both": "both",
    "idle": "idle",
    "caption": (
        "A drawing, not measured. It makes multiplying and softmax equally long and leaves out the warp that fetches. Two "
        "groups that ask for the same unit at once get half of it each; in turns each has all of it, and the matrix units "
        "never rest."
    ),
}
