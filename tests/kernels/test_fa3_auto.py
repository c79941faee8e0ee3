"""Where "auto" takes fa3: held against the recorded rows, which say where it won."""

from __future__ import annotations

import csv

import pytest

from kernels import Problem
from kernels.bench.judge import problem_of
from kernels.bench.record import RESULTS
from kernels.fa3 import (
    FEWEST_KEYS_TIMED,
    MOST_KEYS_TIMED,
    MULTIPROCESSORS,
    ROWS_OF_A_BLOCK,
    ROWS_OF_A_WARPGROUP,
    ROWS_OF_A_WIDE_BLOCK,
    worth,
)


def recorded() -> dict[Problem, dict[str, float]]:
    """Forward times in microseconds by problem and contestant, as `results/hopper.csv` holds them."""
    found: dict[Problem, dict[str, float]] = {}
    with (RESULTS / "hopper.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["time_us"]:
                found.setdefault(problem_of(row), {})[row["contestant"]] = float(row["time_us"])
    return {problem: times for problem, times in found.items() if {"fa2", "fa3"} <= set(times)}


def test_auto_takes_it_exactly_where_it_was_faster():
    rows = recorded()
    assert len(rows) >= 10
    for problem, times in rows.items():
        assert worth(problem) == (times["fa3"] < times["fa2"]), (problem, times)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem(1, 1, 197, 197, 64), True),  # few keys
        (Problem(1, 6, 1370, 1370, 64), True),  # one picture: 132 blocks of 64 queries
        (Problem(1, 6, 1370, 1370, 64, causal=True), False),
        (Problem(1, 6, 1370, 1370, 80), False),
        (Problem(1, 6, 1370, 1371, 64), False),
        (Problem(1, 6, 1409, 1370, 64), False),
        (Problem(1, 6, 577, 576, 64), False),
        (Problem(1, 12, 577, 577, 64), True),
        (Problem(1, MULTIPROCESSORS, 1, 300, 64), True),  # a block for each multiprocessor
        (Problem(1, MULTIPROCESSORS - 1, ROWS_OF_A_BLOCK, 300, 64), False),
        (Problem(1, 1, MULTIPROCESSORS * ROWS_OF_A_WIDE_BLOCK, 300, 128), True),
        (Problem(1, 6, 21905, 21905, 256), False),  # never timed
        (Problem(0, 6, 21905, 21905, 64), False),
    ],
    ids=str,
)
def test_the_rule(problem, expected):
    assert worth(problem) == expected


def test_its_blocks_are_those_of_the_kernel():
    forward = pytest.importorskip("kernels.fa3.forward")
    assert forward.FORMS[64].CONSUMERS * 64 == ROWS_OF_A_BLOCK
    assert forward.FORMS[128].CONSUMERS * 64 == ROWS_OF_A_WIDE_BLOCK
    assert forward.QUERY_ROWS == ROWS_OF_A_WARPGROUP
    assert forward.FEW_QUERIES.CONSUMERS == 1


def test_one_picture_takes_the_form_for_few_queries():
    forward = pytest.importorskip("kernels.fa3.forward")
    for keys in (FEWEST_KEYS_TIMED, MOST_KEYS_TIMED):
        problem = Problem(1, 6, 1370, keys, 64)
        assert worth(problem)
        assert forward.form_for(problem, 64, MULTIPROCESSORS) is forward.FEW_QUERIES
