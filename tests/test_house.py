"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for name in ("app", "vit", "kernels") for path in (ROOT / name).rglob("*.py"))
THEME = tomllib.loads((ROOT / ".streamlit/config.toml").read_text())["theme"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- the code ---------------------------------------------------------------------------------------


def test_sources_are_found():
    assert {"vit/model.py", "kernels/door.py"} <= {name_of(path) for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_stays_under_300_lines(path):
    assert len(path.read_text().splitlines()) < 300


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").rglob("*.py")), ids=name_of)
def test_only_living_triton(path):
    dead = re.findall(r"make_block_ptr|tl\.advance", path.read_text())
    assert not dead, "gone from new Triton; use masked tl.load and tl.store, or descriptors"


def run_at_import(tree: ast.AST):
    """Every node that runs when the module is imported: bodies of functions do not."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from run_at_import(child)


def reads_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os\nX = os.environ['X']", True),
        ("import os\nif os.getenv('X'): pass", True),
        ("import os\ndef f():\n    return os.environ['X']", False),
    ],
)
def test_the_environment_check_can_fail(source, expected):
    assert any(map(reads_environment, run_at_import(ast.parse(source)))) is expected


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_environment_variable_is_read_at_import(path):
    lines = [
        node.lineno
        for node in run_at_import(ast.parse(path.read_text()))
        if reads_environment(node)
    ]
    assert not lines


def test_the_interpreter_switch_has_one_place():
    places = [
        name_of(path)
        for path in SOURCES
        if re.search(r"environ.*TRITON_INTERPRET", path.read_text())
    ]
    assert len(places) <= 1, places


# --- the colours ------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb"; WCAG 2.2."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_black_on_white_and_of_a_known_grey():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("text", ["textColor", "primaryColor", "linkColor"])
@pytest.mark.parametrize("ground", ["backgroundColor", "secondaryBackgroundColor"])
def test_text_meets_wcag_aa(mode, text, ground):
    assert contrast(THEME[mode][text], THEME[mode][ground]) >= 4.5


# --- what is not run is named -----------------------------------------------------------------------


def run_pytest(folder: Path, test: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """pytest on one test beside a copy of our conftest.py."""
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    gpu\n    interpreter\n    browser\n"
    )
    (folder / "test_one.py").write_text(f"import pytest\n{test}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("require", "status"), [("0", 0), ("1", 4)])
def test_a_missing_browser_is_named_and_may_be_refused(tmp_path, require, status):
    test = "@pytest.mark.browser\ndef test_page():\n    raise AssertionError"
    run = run_pytest(tmp_path, test, CHROMIUM=str(tmp_path / "none"), REQUIRE_BROWSER=require)
    assert run.returncode == status
    assert "no Chromium here; install the package chromium" in run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what happens without a GPU")
def test_a_missing_gpu_is_named(tmp_path):
    run = run_pytest(tmp_path, "@pytest.mark.gpu\ndef test_kernel():\n    raise AssertionError")
    assert run.returncode == 0
    assert "1 x gpu tests: no NVIDIA GPU here" in run.stdout


def test_poisoned_empty_fills_new_memory_with_nan(poisoned_empty):
    like = torch.zeros(3)
    for fresh in (torch.empty(3), torch.empty_like(like), like.new_empty(3)):
        assert fresh.isnan().all()
