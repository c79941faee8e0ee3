"""Counts in a process of its own, in which Triton interprets. Started by `counted`, with its question as JSON.

    python -m kernels.traffic.count_worker '[{"batch": 1, ...}, "fa2", "forward", "sm_90"]'

prints {"launches": [[kernel, bytes read, bytes written], ...]} or {"trouble": a sentence}, on one line.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from kernels.problem import Problem
from kernels.traffic.counted import launches_here
from kernels.traffic.ledger import TrafficError


def main(asked: str) -> int:
    """0 where it was counted."""
    sizes, implementation, direction, gpu = json.loads(asked)
    try:
        launches = launches_here(Problem(**sizes), implementation, direction, gpu)
    except TrafficError as trouble:
        answer, code = {"trouble": str(trouble)}, 1
    else:
        answer, code = {"launches": [dataclasses.astuple(one) for one in launches]}, 0
    sys.stdout.write(json.dumps(answer) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
