"""A measuring process that measures nothing: what it does follows from the name of the implementation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

ANSWERS = {"time": {"time_us": 1.0}, "memory": {"peak_bytes": 2}, "hbm": {"hbm_cold": [3, 4]}}


def say(**message) -> None:
    write(json.dumps(message))


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def do(name: str) -> None:
    """What the entry is named after."""
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif name == "quits":
        sys.stderr.write("broke the GPU's context\n")
        sys.exit(2)
    elif name == "garbage":
        write("hello, world")
    elif name == "odd":
        say(reading={"no": "reading"}, index=0)
    elif name == "sleeps":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)
    elif name.startswith("takes "):
        time.sleep(float(name.removeprefix("takes ")))


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    for want in asked["wants"]:
        field = next(iter(ANSWERS[want]))
        left = [
            (index, one)
            for index, one in enumerate(asked["readings"])
            if want not in one["refused"] and one[field] is None
        ]
        indices = [index for index, _ in left]
        if want == "hbm" and left:
            say(begin=indices[0], what=want, together=indices)
            do(left[0][1]["implementation"].removeprefix("hbm "))
        for index, one in left:
            if want != "hbm":
                say(begin=index, what=want, together=[index])
                do(one["implementation"])
            one.update(ANSWERS[want])
            say(reading=one, index=index)
    if asked["roofs"]:
        say(begin=None, what="roofs", together=[])
        say(roofs={"bytes_per_s": 1, "flops_per_s": 2, "dtype": "d", "machine": "m", "when": "w"})
    say(done=True)


if __name__ == "__main__":
    main()
