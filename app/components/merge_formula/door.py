"""The Python side of the formula: its words and where it starts. Nothing comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamlit.components.v2 import component

from app.components.one_script import one_script

FOLDER = Path(__file__).parent
MODULES = ("numbers.js", "write.js", "parts.js", "main.js")
"""In the order of their imports: what a file uses stands before it."""

Blocks = tuple[tuple[float, ...], tuple[float, ...]]
"""Three scores of block x, three of block y."""

RANGE = {"min": -8, "max": 8, "step": 0.5}
"""Of one score."""


def modules() -> str:
    """All modules as one script."""
    return one_script(FOLDER, MODULES)


_component = component("merge_formula", css=(FOLDER / "style.css").read_text("utf-8"), js=modules())


def merge_formula(
    words: Mapping[str, str], start: Blocks, presets: Sequence[tuple[str, Blocks]], key: str
) -> None:
    """Two blocks of three scores with sliders; the merge, softmax of all six and the wrong formula.

    words: the MERGE section of `app.text.why`. presets: title and scores of each button.
    """
    _component(
        key=key,
        data={
            "words": dict(words),
            "range": RANGE,
            "start": start,
            "presets": [{"title": title, "scores": scores} for title, scores in presets],
        },
    )
