"""A component's modules as one script: Streamlit takes one, and a build step would be a burden."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

STATEMENT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)


def one_script(folder: Path, modules: Sequence[str]) -> str:
    """The modules in their order: what one uses stands before it.

    Imports are dropped and only the last keeps its exports, so top-level names must differ between files;
    each component's tests check that.
    """
    texts = [STATEMENT.sub("", (folder / name).read_text("utf-8")) for name in modules]
    inner = [re.sub(r"^export ", "", text, flags=re.MULTILINE) for text in texts[:-1]]
    return "\n".join([*inner, texts[-1]])
