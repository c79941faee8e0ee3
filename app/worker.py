"""The measuring process as the app holds it: started, listened to, ended with all that it started."""

from __future__ import annotations

import json
import logging
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernels.bench.asked import Asked
from kernels.traffic.child import end_tree
from kernels.triton_mode import environment_that_compiles

COMMAND = (sys.executable, "-m", "kernels.bench.live")
ROOT = Path(__file__).parents[1]
LONGEST_LINE = 2**20
MOST_WAITING = 1000
CLOSING_S = 2.0
LOGGED_BYTES = 2000


class Silent(RuntimeError):
    """It said nothing in time."""


class Ended(RuntimeError):
    """It is over. `code` as in `subprocess`: negative after a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Garbage(RuntimeError):
    """It said what is no message."""


class Worker:
    """One process for one request. `next` for one thread; `end` from any, more than once.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, asked: Asked, command: Sequence[str] = COMMAND) -> None:
        self._lines: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._ending = threading.Lock()
        self._ended = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=environment_that_compiles(),
            start_new_session=True,
        )
        request = json.dumps(asked.to_json()).encode() + b"\n"
        threading.Thread(target=self._listen, args=(request,), daemon=True).start()
        threading.Thread(target=self._clear_up, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _listen(self, request: bytes) -> None:
        """Its input stays open: the process ends when that closes, as it does when the app ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.write(request)
            self._process.stdin.flush()
        with suppress(OSError, ValueError):
            while (line := self._process.stdout.readline(LONGEST_LINE)) and not self._ended:
                self._lines.put(line)
        self._lines.put(b"")

    def _clear_up(self) -> None:
        """When it ends by itself, what it started must not hold its output open, or nobody would notice."""
        self._process.wait()
        end_tree(self._process)

    def next(self, timeout_s: float) -> dict[str, Any]:
        """Its next message.

        Raises:
            Silent, Ended, Garbage: there is none.
        """
        try:
            line = self._lines.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise Silent from None
        if not line:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSING_S)  # how it ended is known a moment after its last word
            self.end()
            raise Ended(self._process.returncode)
        try:
            message = json.loads(line)
        except ValueError:
            raise Garbage from None
        if not isinstance(message, dict):
            raise Garbage
        return message

    def end(self) -> None:
        """Kill it and all that it started; they are gone when this returns."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            end_tree(self._process)
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(queue.Empty):
                while True:  # so that the listening thread is not left waiting for room
                    self._lines.get_nowait()
            self._lines.put(b"")

    def log_last_words(self) -> None:
        """What it wrote to stderr, for whoever runs the server."""
        self._log.seek(0, 2)
        self._log.seek(max(0, self._log.tell() - LOGGED_BYTES))
        said = self._log.read().decode(errors="replace").strip()
        logging.getLogger(__name__).warning("The measuring process said last:\n%s", said)
