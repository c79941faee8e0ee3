"""The documents hold what they say: links, commands, names and the lists that they promise."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIP = {".venv", ".git", ".pytest_cache", ".ruff_cache"}
PAGES = sorted(p for p in ROOT.rglob("*.md") if not SKIP & set(p.relative_to(ROOT).parts))
REQUIREMENTS = ROOT / "requirements.txt"
WEIGHTS = ROOT / "requirements-weights.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEV = PROJECT["project"]["optional-dependencies"]["dev"]

LINK = re.compile(r"\]\(([^)\s]+)\)")
ASKED_MAKE = re.compile(r"(?:`|^)make ([a-z]+)", re.MULTILINE)
ASKED_MODULE = re.compile(r"python -m ((?:app|vit|kernels)[\w.]*)")
PACKAGE = re.compile(r"^[\w.-]+")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> list[str]:
    """Requirement lines: no comments, no continuation of a hash."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "--hash"))]


def anchors(page: Path) -> set[str]:
    """The addresses of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(page: Path) -> list[list[str]]:
    """The cells of every table row on a page; the rules under the headings are left out."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    rows = [line.rstrip()[1:-1].split("|") for line in lines if set(line) - set("|-: ")]
    return [[cell.strip() for cell in row] for row in rows]


def test_the_documents_are_there():
    names = {name_of(page) for page in PAGES}
    docs = {f"docs/{name}.md" for name in ("architecture", "adding", "glossary", "dependencies")}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", *docs} <= names
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 150


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_exists(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(ASKED_MAKE.findall(text)) <= targets
    for module in ASKED_MODULE.findall(text):
        found = importlib.util.find_spec(module)
        assert found is not None, module
        is_package = found.submodule_search_locations is not None
        assert not is_package or importlib.util.find_spec(f"{module}.__main__"), module


def test_every_make_target_is_explained():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    explained = re.findall(r"^([a-z]+):[^#\n]*## \S", makefile, re.MULTILINE)
    assert set(explained) == set(phony[1].split())


def test_every_code_path_in_the_architecture_exists():
    text = (ROOT / "docs/architecture.md").read_text()
    paths = re.findall(r"`((?:app|vit|kernels)/[\w./]+)`", text)
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


# --- lists that must stay complete ------------------------------------------------------------------


@pytest.mark.parametrize("line", [*lines_of(REQUIREMENTS), *lines_of(WEIGHTS), *DEV])
def test_every_dependency_is_pinned_and_explained(line):
    assert re.match(r"^[\w.-]+(\[\w+\])?==\d[\w.]*( |$)", line), "pin it with =="
    name = PACKAGE.match(line)
    assert name is not None
    rows = [row for row in table(ROOT / "docs/dependencies.md") if row[0] == name[0]]
    assert len(rows) == 1, "one line in docs/dependencies.md"
    _, purpose, licence, _ = rows[0]
    assert purpose
    assert licence


def test_no_explained_dependency_is_gone():
    pinned = {
        m[0] for m in map(PACKAGE.match, [*lines_of(REQUIREMENTS), *lines_of(WEIGHTS), *DEV]) if m
    }
    explained = {row[0] for row in table(ROOT / "docs/dependencies.md")} - {"package"}
    assert explained <= pinned


def test_the_glossary_names_what_the_registries_hold():
    from kernels.registry import IMPLEMENTATIONS
    from vit.maps import MAPS

    code = " ".join(row[1] + row[3] for row in table(ROOT / "docs/glossary.md"))
    missing = [name for name in [*IMPLEMENTATIONS, *MAPS] if f"`{name}`" not in code]
    assert missing == []


def test_every_glossary_row_is_whole():
    rows = table(ROOT / "docs/glossary.md")
    assert len(rows) > 20
    assert all(len(row) == 4 and row[1] and row[3] for row in rows)
