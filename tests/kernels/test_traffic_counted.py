"""Bytes counted at the kernels' own loads and stores, against the formula to the byte."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
import threading
from itertools import product

import numpy as np
import pytest
import torch

from kernels import Problem, attention, reference
from kernels.registry import load
from kernels.tile_sizes import as_if_on
from kernels.traffic import DIRECTIONS, Traffic, TrafficError, counted, counting_seconds, formula
from kernels.traffic.ledger import Direction
from kernels.triton_mode import INTERPRETER_LOCK

module = importlib.import_module("kernels.traffic.counted")
OURS = ("naive", "fa1", "fa2")
BY_NAME = pytest.mark.parametrize("name", OURS)
INTERPRETED = pytest.mark.interpreter

LENGTHS = [(1, 1), (63, 63), (65, 65), (197, 197), (257, 257)]
UNEQUAL = [(70, 130), (130, 70), (200, 17), (1, 65), (65, 1)]
WIDTHS = (40, 59, 64, 72, 128)
SHARED = [(4, 2), (3, 1)]


def odd_shapes() -> list[Problem]:
    """Token counts around tiles, queries unlike keys, odd widths, shared heads, two batch items."""
    found = [
        Problem(1, 1, queries, keys, 64, dtype, causal)
        for (queries, keys), dtype, causal in product(
            LENGTHS + UNEQUAL, ("float32", "float16"), (False, True)
        )
    ]
    found += [
        Problem(1, 1, *length, width, dtype, causal)
        for (length, causal), width, dtype in product(
            [((65, 65), False), ((130, 70), True)], (1, 256, *WIDTHS), ("float32", "float16")
        )
    ]
    found += [
        Problem(2, heads, *length, 40, "float16", causal, kv_heads)
        for (heads, kv_heads), length, causal in product(
            SHARED, [(65, 65), (90, 40)], (False, True)
        )
    ]
    return found


def assert_equal_over(problems: list[Problem], name: str, direction: Direction, gpu: str) -> None:
    for problem in problems:
        found = counted(problem, name, direction, gpu)
        assert found.detail == formula(problem, name, direction, gpu).detail, problem
        assert found.source == "counted"


@INTERPRETED
@pytest.mark.slow
@BY_NAME
@pytest.mark.parametrize("gpu", ["any", "sm_90"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_formula_equals_the_count(name, gpu, direction):
    """Each launch, byte for byte, over all odd shapes; both passes together are their sum by definition."""
    assert_equal_over(odd_shapes(), name, direction, gpu)


@INTERPRETED
@BY_NAME
def test_the_formula_equals_the_count_in_short(name):
    """The same over a few of them, for every day."""
    assert_equal_over(odd_shapes()[::15], name, "forward+backward", "sm_90")


@INTERPRETED
@BY_NAME
def test_forward_and_backward_together(name):
    problem = Problem(2, 4, 70, 50, 40, "float32", True, 2)
    found = counted(problem, name, "forward+backward", "any")
    assert found.detail == formula(problem, name, "forward+backward", "any").detail
    assert [x.kernel for x in found.detail[:1]] == [
        "pairs_kernel" if name == "naive" else "forward_kernel"
    ]


@INTERPRETED
@BY_NAME
def test_a_long_row(name):
    """Past the longest row that the softmax holds at once."""
    problem = Problem(1, 1, 3, 16385, 16, "float16")
    assert counted(problem, name, gpu="any").detail == formula(problem, name, gpu="any").detail


@INTERPRETED
@BY_NAME
@pytest.mark.parametrize("causal", [False, True])
def test_the_size_of_a_picture(name, causal):
    """518 px: many tiles each way, so that a few programs stand for many."""
    problem = Problem(16, 6, 1370, 1370, 64, "bfloat16", causal)
    assert counted(problem, name, gpu="sm_90").detail == formula(problem, name, gpu="sm_90").detail


# --- the short way counts what the long way counts ----------------------------------------------------


def count_everything(problem: Problem, name: str, direction: str, gpu: str):
    """Every program, on real tensors with real values, as the interpreter runs it for a result."""
    from kernels.traffic.counting import counting

    with as_if_on(gpu), counting(values=True) as count, np.errstate(all="ignore"):
        module.launch(problem, name, direction, device="cpu")
    return tuple(count.launches)


PLAIN = [
    (Problem(1, 1, 150, 150, 64, "float32"), "any"),
    (Problem(1, 1, 90, 150, 40, "float16", causal=True), "sm_90"),
    (Problem(1, 1, 150, 60, 64, "float16", causal=True), "any"),
    (Problem(2, 4, 70, 70, 16, "float32", kv_heads=2), "any"),
]


@INTERPRETED
@BY_NAME
@pytest.mark.parametrize(("problem", "gpu"), PLAIN, ids=str)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_counting_without_values_skips_nothing(name, problem, gpu, direction):
    """All heads, all programs, all values: the same, so one head times all heads is exact as well."""
    assert count_everything(problem, name, direction, gpu) == (
        counted(problem, name, direction, gpu).detail
    )


@INTERPRETED
@BY_NAME
def test_a_kernel_that_is_counted_with_values_computes_as_ever(name):
    from kernels.traffic.counting import counting

    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 2, 70, 40, generator=generator) for _ in range(3))
    with counting(values=True):
        output, lse = load(name).forward(q, k, v, 0.2, True)
    expected, expected_lse = reference.attention(q, k, v, 0.2, True)
    assert (output - expected).abs().max() < 1e-5
    assert (lse - expected_lse).abs().max() < 1e-5


@INTERPRETED
@BY_NAME
def test_after_counting_kernels_compute_again(name):
    """What counting puts into Triton's interpreter is gone afterwards, of a count that failed too."""
    from kernels.traffic.counting import counting

    q = torch.ones(1, 1, 20, 16)
    counted(Problem(1, 1, 20, 20, 16, "float32"), name)
    with pytest.raises(ZeroDivisionError), counting():
        _ = 1 / 0
    output, _ = attention(q, q, q, implementation=name)
    assert (output - q).abs().max() < 1e-5


@INTERPRETED
@pytest.mark.parametrize("values", [True, False])
def test_atomics_are_refused_in_one_sentence(values):
    from kernels.tiles import tl, triton
    from kernels.traffic.counting import counting

    @triton.jit
    def add(pointer):
        tl.atomic_add(pointer, 1.0)

    with pytest.raises(TrafficError, match=r"^This kernel adds with atomics"), counting(values):
        add[(1,)](torch.zeros(1))


@INTERPRETED
def test_other_threads_wait_and_get_their_values():
    """A visitor computes while another counts: nobody gets the zeros of a count."""
    q = torch.ones(1, 1, 20, 16)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(attention(q, q, q, implementation="fa2")[0]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    found = counted(Problem(1, 1, 600, 600, 64, "float32"), "fa1", gpu="any")
    for thread in threads:
        thread.join()
    assert found.detail == formula(Problem(1, 1, 600, 600, 64, "float32"), "fa1", gpu="any").detail
    assert len(results) == 4
    assert all((one - q).abs().max() < 1e-5 for one in results)


@INTERPRETED
def test_a_launch_takes_the_lock():
    q, done = torch.ones(1, 1, 4, 16), threading.Event()

    def compute():
        attention(q, q, q, implementation="fa2")
        done.set()

    with INTERPRETER_LOCK:
        threading.Thread(target=compute).start()
        assert not done.wait(0.5)
    assert done.wait(30)


@INTERPRETED
def test_programs_that_differ_do_not_stand_for_each_other(monkeypatch):
    """Whole tiles and the last one, wrongly called alike, are found out."""
    kinds = importlib.import_module("kernels.traffic.kinds")
    place = ("kernels.fa2.forward", "forward_kernel")
    monkeypatch.setitem(kinds.KINDS, place, kinds.by_head)
    with pytest.raises(TrafficError, match="should move the same bytes"):
        counted(Problem(1, 1, 100, 100, 64, "float32"), "fa2")


@INTERPRETED
def test_a_kernel_without_an_entry_is_run_in_full(monkeypatch):
    kinds = importlib.import_module("kernels.traffic.kinds")
    monkeypatch.setattr(kinds, "KINDS", {})
    problem = Problem(1, 2, 200, 200, 64, "float32")
    assert counted(problem, "naive", gpu="any").detail == (
        formula(problem, "naive", gpu="any").detail
    )


# --- a process of its own -----------------------------------------------------------------------------


@BY_NAME
def test_a_worker_counts_the_same(name):
    """On a machine with a GPU this is the only way, and it runs there too."""
    pytest.importorskip("triton")
    problem = Problem(3, 4, 70, 90, 40, "bfloat16", True, 2)
    found = counted(problem, name, "forward+backward", "sm_90", in_worker=True)
    assert found.detail == formula(problem, name, "forward+backward", "sm_90").detail


def test_where_triton_compiles_a_worker_is_taken(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "interprets", lambda: False)
    monkeypatch.setattr(module, "launches_in_worker", lambda *a: asked.append(a) or [])
    pytest.importorskip("triton")
    counted(Problem(2, 4, 70, 90, 40, "bfloat16", kv_heads=2), "fa2", gpu="sm_90")
    [(problem, name, direction, gpu, _)] = asked
    assert problem == Problem(1, 2, 70, 90, 40, "float16", kv_heads=1)
    assert (name, direction, gpu) == ("fa2", "forward", "sm_90")


def worker_that(monkeypatch, code: str) -> None:
    """The worker is a process that runs this instead."""
    run = subprocess.run

    def played(command, **options):
        return run([sys.executable, "-c", code], **options)

    pytest.importorskip("triton")
    monkeypatch.setattr(module.subprocess, "run", played)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import time; time.sleep(60)", "longer than 0.5 s and was stopped"),
        ("import os; os.kill(os.getpid(), 9)", r"ended early \(code -9: it printed nothing\)"),
        ("import sys; sys.exit('no memory left')", r"ended early \(code 1: no memory left\)"),
        ("print('hello')", "ended early"),
        ("print('{}')", "ended early"),
        ("print('[1, 2]')", "ended early"),
        ("""print('{"trouble": "Do this."}')""", "^Do this.$"),
    ],
)
def test_a_worker_that_fails_ends_in_a_sentence(monkeypatch, code, sentence):
    worker_that(monkeypatch, code)
    with pytest.raises(TrafficError, match=sentence):
        counted(
            Problem(1, 1, 9, 9, 64), "fa2", in_worker=True, timeout_s=0.5 if "60" in code else 60
        )


def test_no_process_to_be_had(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    with pytest.raises(TrafficError, match="No process could be started"):
        counted(Problem(1, 1, 9, 9, 64), "fa2", in_worker=True)


# --- what is not counted ------------------------------------------------------------------------------


def test_without_triton_the_sentence_says_so(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TrafficError, match="Triton is not installed"):
        counted(Problem(1, 1, 9, 9, 64), "fa2")


def test_what_takes_too_long_is_refused_unless_asked_for(monkeypatch):
    pytest.importorskip("triton")
    large = Problem(1, 1, 100_000, 100_000, 64, "float16", True)
    with pytest.raises(
        TrafficError, match=r"100,000 × 100,000 tokens would take about \d+ minutes"
    ):
        counted(large, "fa2")
    monkeypatch.setattr(module, "launches_here", lambda *_: [])
    monkeypatch.setattr(module, "launches_in_worker", lambda *_: [])
    assert counted(large, "fa2", without_limit=True).total == 0


def test_the_forecast_grows_with_the_work():
    sizes = [Problem(1, 1, n, n, 64, "float16") for n in (197, 1370, 5477, 21905)]
    for name, direction in product(OURS, DIRECTIONS):
        seconds = [counting_seconds(problem, name, direction, "any") for problem in sizes]
        assert seconds == sorted(seconds)
        many = dataclasses.replace(sizes[1], batch=16, heads=12)
        assert counting_seconds(many, name, direction, "any") == seconds[1]


def test_what_has_no_loops_of_ours_is_not_counted():
    with pytest.raises(TrafficError, match="not ours to read"):
        counted(Problem(1, 1, 9, 9, 64), "eager")


def test_nothing_moves_where_there_is_nothing():
    assert counted(Problem(1, 0, 9, 9, 64), "fa2") == Traffic(0, 0, "counted", ())
