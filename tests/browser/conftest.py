"""A headless Chromium and a running Streamlit, for every browser test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START_SECONDS = 60
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator:
    """Playwright's browser, around the Chromium of this machine."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            raise
        pytest.skip("Playwright is not installed; it comes with the developer tools")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield chromium
        chromium.close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait_until_healthy(address: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, f"Streamlit ended:\n{log.read_text()}"
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError(f"no answer from {address} in {START_SECONDS} s:\n{log.read_text()}")


@pytest.fixture(scope="session")
def streamlit_server(tmp_path_factory) -> Iterator[Callable[..., str]]:
    """streamlit_server(script, port=None) starts a script, once, and returns its address.

    `script` is a path from the repository's root, which is also the working folder.
    """
    addresses: dict[str, str] = {}
    processes: list[subprocess.Popen] = []

    def start(script: str | Path, port: int | None = None) -> str:
        name = str(script)
        if name in addresses:
            return addresses[name]
        port = port or free_port()
        log = tmp_path_factory.mktemp("streamlit") / "log.txt"
        command = [sys.executable, "-m", "streamlit", "run", name, "--server.headless=true"]
        command += [f"--server.port={port}", "--server.address=127.0.0.1"]
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        processes.append(process)
        addresses[name] = f"http://127.0.0.1:{port}"
        wait_until_healthy(addresses[name], process, log)
        return addresses[name]

    yield start
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(timeout=20)
