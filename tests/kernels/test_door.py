"""What the public door refuses, and with which sentence; what it chooses."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from kernels import Problem, attention, attention_rows, choose, implementations
from kernels.registry import AUTO, IMPLEMENTATIONS, load
from kernels.tiles import offsets_are_wide

Q = torch.randn(1, 2, 5, 8)
LSE = torch.zeros(1, 2, 5)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((Q.double(), Q, Q), TypeError, "q must be"),
        (([1], Q, Q), TypeError, "q must be"),
        ((Q[0], Q, Q), ValueError, "q must be"),
        ((Q, Q.half(), Q), TypeError, "k must be"),
        ((Q, Q[..., :4], Q), ValueError, "k must be"),
        ((Q, Q[:, :0], Q[:, :0]), ValueError, "k has 0 heads"),
        ((Q, torch.randn(1, 3, 5, 8), torch.randn(1, 3, 5, 8)), ValueError, "k has 3 heads"),
        ((Q, Q.to("meta"), Q), ValueError, "k is on meta"),
        ((Q, Q, Q.half()), TypeError, "v must be"),
        ((Q, Q, Q[:, :, :4]), ValueError, "v must have"),
        ((Q, Q, Q.to("meta")), ValueError, "v is on meta"),
    ],
)
def test_one_sentence_names_the_argument(arguments, error, words):
    with pytest.raises(error, match=words) as raised:
        attention(*arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("lse", "rows", "error", "words"),
    [
        (LSE.double(), [0], TypeError, "lse must be"),
        (LSE[:, :1], [0], ValueError, "lse must be"),
        (LSE, [5], ValueError, "rows must lie in 0 to 4"),
        (LSE, [-1], ValueError, "rows must lie in 0 to 4"),
        (LSE, [0.5], TypeError, "rows must be whole numbers"),
        (LSE, [[1]], ValueError, "rows must be a list"),
    ],
)
def test_rebuilding_refuses(lse, rows, error, words):
    with pytest.raises(error, match=words):
        attention_rows(Q, Q, lse, rows)


def test_unknown_implementation_lists_the_known():
    with pytest.raises(ValueError, match=f"choose auto, {', '.join(IMPLEMENTATIONS)}"):
        attention(Q, Q, Q, implementation="fa9")


def test_gradients_are_never_dropped_in_silence(monkeypatch):
    q = Q.clone().requires_grad_()
    forward_only = dataclasses.replace(load("eager"), backward=None)
    with monkeypatch.context() as patch:
        patch.setattr("kernels.operator.load", lambda name: forward_only)
        with pytest.raises(ValueError, match="has no backward"):
            attention(q, Q, Q, implementation="eager")
    output, _ = attention(q, Q, Q, implementation="eager")
    output.sum().backward()
    assert q.grad is not None


@pytest.mark.interpreter
def test_interpreter_refuses_what_it_gets_wrong_or_slow():
    cpu = torch.device("cpu")
    fa2 = load("fa2")
    assert "bfloat16" in fa2.supports(Problem(1, 1, 8, 8, 64, "bfloat16"), cpu)
    assert "minutes" in fa2.supports(Problem(1, 6, 5477, 5477, 64), cpu)
    assert "256" in fa2.supports(Problem(1, 1, 8, 8, 320), cpu)


def test_auto_names_what_it_takes():
    problem = Problem(1, 2, 65, 65, 64, "float32")
    assert choose(problem, "cpu") == "torch-cpu-flash"
    assert choose(Problem(1, 2, 65, 66, 64, causal=True), "cpu") == "eager"


@pytest.mark.gpu
def test_auto_takes_triton_on_a_gpu():
    """fa3 where it runs and wins, which is on Hopper with heads of at most 128 dimensions in 16 bits."""
    narrow, wide = Problem(1, 2, 65, 65, 64), Problem(1, 2, 65, 65, 256)
    hopper = load("fa3").supports(narrow, torch.device("cuda")) is None
    assert choose(narrow, "cuda") == ("fa3" if hopper else "fa2")
    assert choose(wide, "cuda") == "fa2"
    assert choose(dataclasses.replace(narrow, dtype="float32"), "cuda") == "fa2"


def test_auto_passes_over_what_is_not_worth_it(monkeypatch):
    monkeypatch.setitem(AUTO, "cpu", ("naive", "eager"))
    never = dataclasses.replace(load("eager"), worth=lambda problem: False)
    monkeypatch.setattr(
        "kernels.registry.load", lambda name: never if name == "naive" else load(name)
    )
    assert choose(Problem(1, 2, 65, 65, 64, "float32"), "cpu") == "eager"


def test_every_implementation_runs_or_says_why():
    for name, reason in implementations().items():
        assert reason is None or reason.endswith("."), name


def test_offsets_beyond_32_bits_are_noticed():
    near = torch.empty(2, 64)
    far = torch.empty(0).as_strided((0, 2), (2**24, 1))
    assert not offsets_are_wide(near)
    assert offsets_are_wide(near, far)


def test_works_without_triton():
    """On a machine that has no Triton the door opens, and fa2 says what is missing."""
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'triton' else find(n, *a)\n"
        "import torch, kernels\n"
        "q = torch.randn(1, 1, 9, 8)\n"
        "o, lse = kernels.attention(q, q, q)\n"
        "print(kernels.attention_rows(q, q, lse, [3]).sum().item())\n"
        "print(kernels.implementations()['fa2'])\n"
    )
    lines = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert float(lines[0]) == pytest.approx(1, abs=1e-4)
    assert "Triton is not installed" in lines[1]


@pytest.mark.interpreter
@pytest.mark.parametrize(
    ("imports", "words"),
    [("torch, kernels, triton", "None"), ("triton, torch, kernels", "import kernels first")],
    ids=["kernels first", "Triton first"],
)
def test_the_interpreter_is_on_or_said_to_be_too_late(imports, words):
    code = (
        f"import {imports}\n"
        "print(kernels.implementations()['fa2'])\n"
        "q = torch.randn(1, 1, 9, 16)\n"
        "fa2 = kernels.implementations()['fa2'] is None\n"
        "name = 'fa2' if fa2 else 'auto'\n"
        "print((kernels.attention(q, q, q, implementation=name)[0] - kernels.attention(q, q, q)[0]).abs().max())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert words in done.stdout.splitlines()[0]
    assert float(done.stdout.split("tensor(")[1].rstrip(")\n")) < 1e-5
