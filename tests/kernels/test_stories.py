"""Every story tells the code that is there: one heading for one anchor, in the words of both."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kernels
from kernels.registry import IMPLEMENTATIONS
from kernels.story import anchors, folder_of, story, told

TOLD = ("naive", "fa1", "fa2", "fa3")
"""What the app tells step by step; more may have a story, these must."""

MARKDOWN = "# A kernel\n\nBefore.\n\n## First\n\nOne.\n\n## Second\n\nTwo,\nthree.\n"
CODE = '''"""A kernel."""


def helper(x):
    # step: Second
    return x + 1


def kernel(x):
    x = -x
    # step: First
    y = x
    if y:
        y = 2
    return y


LAST = 0
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one kernel, whose story and code a test may change."""
    (tmp_path / "story.md").write_text(MARKDOWN)
    (tmp_path / "forward.py").write_text(CODE)
    monkeypatch.setattr("kernels.story.folder_of", lambda name: tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", TOLD)
def test_it_is_told(name):
    assert name in IMPLEMENTATIONS
    assert story(name), f"{name} has no story.md"


@pytest.mark.parametrize("name", [name for name in IMPLEMENTATIONS if folder_of(name)])
def test_headings_and_anchors_match(name):
    folder = folder_of(name)
    steps = story(name)  # raises where they do not
    assert [step.title for step in steps] == list(told((folder / "story.md").read_text(), name))
    assert len(steps) == len(anchors(folder))
    backward = [step.source.startswith("backward") for step in steps]
    assert backward == sorted(backward), "forward is told before backward"
    for step in steps:
        assert len(step.text.split()) >= 20, f"{step.title}: say what it does and why"
        lines = (folder / step.source).read_text().splitlines()
        assert lines[step.line - 1].strip() == f"# step: {step.title}"
        assert lines[step.last_line - 1].strip() == step.code.splitlines()[-1].strip()
        code = [c for line in step.code.splitlines() if (c := line.strip()) and c[0] != "#"]
        assert code, f"{step.title}: no code follows"


def test_no_anchor_stands_where_no_story_is():
    folder = Path(kernels.__file__).parent
    stray = [
        path
        for path in folder.rglob("*.py")
        if re.search(r"^ *# step: ", path.read_text(), re.MULTILINE)
        and not (path.parent / "story.md").exists()
    ]
    assert not stray


def test_steps_come_in_the_order_of_the_story_with_their_code(package):
    first, second = story("fa2")
    assert (first.title, first.text, first.source) == ("First", "One.", "forward.py")
    assert first.code == "y = x\nif y:\n    y = 2\nreturn y"
    assert (first.line, first.last_line) == (11, 15)
    assert (second.text, second.code) == ("Two,\nthree.", "return x + 1")
    assert ast.parse(first.code)


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("story.md", "## Second", "## Third", "stands in"),
        ("forward.py", "# step: First", "# First", "'First' stands in story.md only"),
        ("forward.py", "# step: First", "# step: Second", "'Second' stands twice in the code"),
        ("story.md", "## Second", "## First", "'First' is told twice"),
    ],
)
def test_what_does_not_match_is_named(package, file, old, new, words):
    path = package / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=words):
        story("fa2")


def test_only_the_known_have_stories():
    with pytest.raises(ValueError, match="is not known"):
        story("fa9")
    assert story("eager") == ()
