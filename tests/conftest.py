"""What every test may count on: fixed seeds, poisoned memory, and a named reason for what is not run."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import kernels  # noqa: F401 - before any test imports Triton, which then is interpreted or compiled

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER_ON_MACOS = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


# --- what this machine can run ----------------------------------------------------------------------


def find_browser() -> str | None:
    """The program that CHROMIUM names, or a Chromium or Chrome found on this machine."""
    chosen = os.environ.get("CHROMIUM")
    if chosen:
        return shutil.which(chosen)
    on_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    return on_path or (str(BROWSER_ON_MACOS) if BROWSER_ON_MACOS.exists() else None)


@cache
def gpu() -> str | None:
    """Why the tests marked gpu cannot run here, or None."""
    return None if torch.cuda.is_available() else "no NVIDIA GPU here"


@cache
def interpreter() -> str | None:
    """Why the tests marked interpreter cannot run here, or None.

    Triton decides at import, once for the process, whether it interprets or compiles.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed here; it comes with Linux only"
    return None if gpu() else "this machine has a GPU; run them on a machine without one"


@cache
def browser() -> str | None:
    """Why the tests marked browser cannot run here, or None."""
    if find_browser() is None:
        return "no Chromium here; install the package chromium, or set CHROMIUM to its path"
    return None


TIERS = {"gpu": gpu, "interpreter": interpreter, "browser": browser}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, by name and with the reason, what cannot run here; REQUIRE_BROWSER=1 refuses instead."""
    for item in items:
        for tier, reason_not_here in TIERS.items():
            reason = reason_not_here()
            if item.get_closest_marker(tier) is None or reason is None:
                continue
            if tier == "browser" and os.environ.get("REQUIRE_BROWSER") == "1":
                raise pytest.UsageError(f"REQUIRE_BROWSER=1, but {reason}")
            item.add_marker(pytest.mark.skip(reason=f"{tier} tests: {reason}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not run, and why."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.section("not run on this machine")
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count:4d} x {reason}")


# --- fixtures ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """The same random numbers in every run, whatever ran before."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def poisoned_empty() -> Iterator[None]:
    """Memory that nobody has written holds NaN, so that a kernel that skips an element is found out.

    PyTorch fills only while its deterministic mode is on; it warns where an operator has no such mode.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warn_before = torch.is_deterministic_algorithms_warn_only_enabled()
    fill_before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = fill_before
    torch.use_deterministic_algorithms(before, warn_only=warn_before)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The browser for Playwright's executable_path; only for tests marked browser."""
    path = find_browser()
    assert path is not None, "mark the test: @pytest.mark.browser"
    return path
