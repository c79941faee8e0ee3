"""The story of a kernel: what each step does and why, beside the lines of code that do it."""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from kernels.registry import IMPLEMENTATIONS

ANCHOR = re.compile(r"\s*# step: (.+)")


@dataclass(frozen=True)
class Step:
    """One step: the words of story.md and the code under the anchor `# step: Title`."""

    title: str
    text: str  # Markdown
    source: str  # file in the kernel's folder, such as "forward.py"
    line: int  # of the anchor in that file, counted from 1
    code: str  # what follows, up to the next anchor or the end of its function

    @property
    def last_line(self) -> int:
        """The last line of the code in that file."""
        return self.line + len(self.code.splitlines())


def story(name: str) -> tuple[Step, ...]:
    """The steps of an implementation in the order of its story.md; none where it has no story.

    Raises:
        ValueError: there is no implementation of this name, or headings and anchors do not match; the
            sentence names the step.
    """
    if name not in IMPLEMENTATIONS:
        raise ValueError(
            f"implementation {name!r} is not known; choose {', '.join(IMPLEMENTATIONS)}"
        )
    folder = folder_of(name)
    if folder is None:
        return ()
    texts = told((folder / "story.md").read_text("utf-8"), name)
    found = anchors(folder)
    places = {step.title: step for step in found}
    if len(places) < len(found):
        titles = [step.title for step in found]
        twice = next(title for title in titles if titles.count(title) > 1)
        raise ValueError(f"{name}: the step {twice!r} stands twice in the code")
    for title in texts.keys() ^ places.keys():
        where = "story.md" if title in texts else places[title].source
        raise ValueError(f"{name}: the step {title!r} stands in {where} only")
    return tuple(replace(places[title], text=text) for title, text in texts.items())


def folder_of(name: str) -> Path | None:
    """The folder of an implementation that has a story."""
    found = importlib.util.find_spec(IMPLEMENTATIONS[name])
    assert found is not None, name
    assert found.origin is not None, name
    folder = Path(found.origin).parent
    is_package = found.submodule_search_locations is not None
    return folder if is_package and (folder / "story.md").exists() else None


def told(markdown: str, name: str) -> dict[str, str]:
    """Heading -> the text under it; what stands before the first heading is no step."""
    texts: dict[str, str] = {}
    _, *parts = re.split(r"^## ", markdown, flags=re.MULTILINE)
    for part in parts:
        title, _, text = part.partition("\n")
        if title.strip() in texts:
            raise ValueError(f"{name}: the step {title.strip()!r} is told twice in story.md")
        texts[title.strip()] = text.strip()
    return texts


def anchors(folder: Path) -> list[Step]:
    """Every step that the sources of a kernel name, in the order of the lines, without its text."""
    found = []
    for path in sources(folder):
        source, text = path.name, path.read_text("utf-8")
        lines = text.splitlines()
        starts = [n for n, line in enumerate(lines, 1) if ANCHOR.fullmatch(line)]
        for start in starts:
            end = min((n - 1 for n in starts if n > start), default=len(lines))
            end = min(end, end_of_function(text, start))
            match = ANCHOR.fullmatch(lines[start - 1])
            assert match is not None
            code = textwrap.dedent("\n".join(lines[start:end])).rstrip()
            found.append(Step(match[1].strip(), "", source, start, code))
    return found


def sources(folder: Path) -> list[Path]:
    """The modules of a kernel: what belongs to its forward pass, then what belongs to its backward pass."""
    return sorted(
        folder.glob("*.py"), key=lambda path: (path.name.startswith("backward"), path.name)
    )


def end_of_function(source: str, line: int) -> int:
    """The last line of the function that holds a line, or of the file."""
    spans = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    ]
    return min((e for s, e in spans if s <= line <= e), default=len(source.splitlines()))
