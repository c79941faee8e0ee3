"""The Python side of the formula: its words and where it starts. Nothing comes back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamlit.components.v2 import component

FOLDER = Path(__file__).parent
MODULES = ("numbers.js", "write.js", "parts.js", "main.js")
"""In the order of their imports: what a file uses stands before it."""

STATEMENT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)

Blocks = tuple[tuple[float, ...], tuple[float, ...]]
"""Three scores of block x, three of block y."""

RANGE = {"min": -8, "max": 8, "step": 0.5}
"""Of one score."""


def modules() -> str:
    """All modules as one script: imports are dropped, only the last file keeps its export."""
    texts = [STATEMENT.sub("", (FOLDER / name).read_text("utf-8")) for name in MODULES]
    inner = [re.sub(r"^export ", "", text, flags=re.MULTILINE) for text in texts[:-1]]
    return "\n".join([*inner, texts[-1]])


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
