"""Compiler or interpreter: Triton decides once per process, when it is imported.

This is the only place that sets or clears TRITON_INTERPRET. `import kernels` calls `prepare()` before anything
else of ours can import Triton.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading

import torch

from kernels.problem import Problem

INTERPRETED_SCORES = 2**20
"""Scores (batch x heads x queries x keys) that the interpreter works through in about a minute at most."""

INTERPRETER_LOCK = threading.RLock()
"""Held by whoever runs Triton's interpreter: its grid index and its patched language are the whole process's.

Each interpreted launch takes it (`take_turns`); take it yourself around what must not be interrupted."""


def prepare() -> None:
    """Choose the interpreter where there is no GPU and it is not too late; else change nothing."""
    if not torch.cuda.is_available() and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"


def environment_that_compiles() -> dict[str, str]:
    """This process's environment for another one, in which Triton is to compile."""
    return {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}


def environment_that_interprets() -> dict[str, str]:
    """The same for one in which Triton is to interpret, on the CPU: it sees no GPU."""
    return {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}


def interprets() -> bool:
    """True where Triton interprets in this process, or would if it were imported now."""
    return not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") == "1"


def take_turns() -> None:
    """From now on interpreted launches follow one another, whichever threads they come from.

    For the module that all our kernels import, once it has imported Triton. Where Triton compiles there is no
    interpreter in this process, and nothing to do.
    """
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None:
        return
    run = interpreter.InterpretedFunction.run
    if getattr(run, "takes_turns", False):
        return

    def run_alone(self, *arguments, **named):
        with INTERPRETER_LOCK:
            return run(self, *arguments, **named)

    setattr(run_alone, "takes_turns", True)  # noqa: B010  pyright knows no attribute of a function
    interpreter.InterpretedFunction.run = run_alone


def reason_against(problem: Problem, device: torch.device) -> str | None:
    """Why Triton kernels cannot run this problem on this device, or None."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; it comes with requirements.txt on Linux."
    if device.type == "cuda":
        return reason_against_gpu(problem, device)
    if device.type != "cpu":
        return f"Triton has no kernels for {device.type}; use an NVIDIA GPU or the CPU."
    return reason_against_interpreter(problem)


def reason_against_gpu(problem: Problem, device: torch.device) -> str | None:
    """What an NVIDIA GPU may lack."""
    if not torch.cuda.is_available():
        return "There is no NVIDIA GPU here that torch can use."
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        return f"These kernels need compute capability 8.0 (A100) or later, not {capability[0]}.{capability[1]}."
    return None


def reason_against_interpreter(problem: Problem) -> str | None:
    """On CPU tensors the same kernels run in Triton's interpreter, for small problems."""
    if torch.cuda.is_available():
        return "Triton runs on the GPU in this process; move the tensors there."
    if problem.dtype == "bfloat16":
        return "Triton's interpreter computes bfloat16 wrongly; use float32 or float16 on the CPU."
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    if scores > INTERPRETED_SCORES:
        return (
            f"Without a GPU this kernel runs in Triton's interpreter, and {scores:,} scores would take "
            "minutes; choose torch-cpu-flash."
        )
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        return "Triton was imported before its interpreter was switched on; import kernels first."
    return None
