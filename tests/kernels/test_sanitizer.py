"""NVIDIA's compute-sanitizer finds no wrong access and no wrong barrier in small launches of every kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module, util

import pytest
import torch

from tests.vit.helpers import ROOT

pytestmark = pytest.mark.skipif(
    util.find_spec("triton") is None, reason="Triton comes with Linux only"
)
FAMILIES = ["naive", "fa1", "fa2", "fa3", "rebuild", "product_hopper", "fp8", "fused"]
TOOLS = ["memcheck", "synccheck"]
CLEAN = "ERROR SUMMARY: 0 errors"


def checked(tool: str, family: str) -> str:
    """What the checker and the launches print. torch does not pool memory, so every tensor has an end."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("There is no compute-sanitizer here; it comes with the CUDA toolkit.")
    done = subprocess.run(
        [sanitizer, "--tool", tool, sys.executable, "-m", "tests.kernels.small_launches", family],
        cwd=ROOT,
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_found(family, tool):
    said = checked(tool, family)
    skipped = [line for line in said.splitlines() if line.startswith("skipped: ")]
    if skipped:
        pytest.skip(skipped[0].removeprefix("skipped: "))
    assert "\ndone\n" in said, said[-2000:]
    assert CLEAN in said, said[:4000]


@pytest.mark.gpu
@pytest.mark.slow
def test_what_is_wrong_would_be_found():
    said = checked("memcheck", "beyond")
    assert "ERROR SUMMARY" in said
    assert CLEAN not in said


def test_every_family_is_launched():
    launches = import_module("tests.kernels.small_launches").LAUNCHES
    assert list(launches) == FAMILIES


@pytest.mark.parametrize("family", ["rebuild", "fused"])
def test_the_launches_run_where_there_is_no_gpu_too(family):
    launches = import_module("tests.kernels.small_launches").LAUNCHES
    assert launches[family](torch.device("cpu")) is None


def test_both_passes_run_of_what_a_cpu_has():
    passes = import_module("tests.kernels.small_launches").passes
    assert passes("eager")(torch.device("cpu")) is None


@pytest.mark.parametrize("family", ["fa3", "product_hopper", "fp8"])
def test_a_family_says_why_it_does_not_run(family):
    launches = import_module("tests.kernels.small_launches").LAUNCHES
    reason = launches[family](torch.device("cpu"))
    assert reason is not None
    assert reason.endswith(".")
