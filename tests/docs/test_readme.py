"""What the README tells a newcomer to type does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^python (-m vit .+)$", README, re.MULTILINE)


@pytest.fixture
def photo(tmp_path, monkeypatch):
    """A folder with a photo.jpg in it, wider than high, as the current folder."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("photo.jpg")


def test_examples_are_found():
    assert (len(PYTHON), len(COMMANDS)) == (4, 2)


@pytest.mark.slow
def test_the_model_example_runs(photo):
    names: dict = {}
    exec(PYTHON[0], names)
    assert names["maps"].shape == (6, 28, 37)


def test_the_kernel_example_runs(capsys):
    names: dict = {}
    exec(PYTHON[1], names)
    assert names["row"].shape == (1, 6, 1, 1370)
    assert names["row"].sum(-1).allclose(names["row"].new_ones(1, 6, 1), atol=1e-4)
    assert "'eager': None" in capsys.readouterr().out


def test_the_example_of_a_walk_runs(capsys):
    names: dict = {}
    exec(PYTHON[3], names)
    assert names["steps"][-1].running_max.shape == (64,)
    assert "tensor" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_bytes_runs(capsys):
    exec(PYTHON[2], {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.replace("formula", "counted") == second


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(photo, command):
    run = subprocess.run(
        [sys.executable, *shlex.split(command)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert Path(command.split()[-1]).stat().st_size > 0
