"""Tuning: tables are real, a candidate stands in its table only while it is tried, faults are recorded."""

from __future__ import annotations

import argparse

import pytest
import torch

from kernels.bench import tune
from kernels.bench.contestants import PARTS, WORKS
from kernels.bench.recipes import square
from kernels.registry import IMPLEMENTATIONS
from kernels.tile_sizes import Tiles

PROBLEM = square(1, 1, 64, 64)


@pytest.mark.parametrize("name", tune.TUNABLE)
def test_every_table_is_there(name):
    tunable = tune.TUNABLE[name]
    contestant, direction = tunable.entry
    assert contestant in IMPLEMENTATIONS or contestant in PARTS
    assert direction in WORKS or direction == "rebuild"
    assert isinstance(tunable.rows["any", 2, 64], Tiles)


def test_the_grid_keeps_sensible_rows():
    parser = argparse.ArgumentParser()
    tune.add_options(parser)
    rows = tune.grid(parser.parse_args(["fa2-forward"]))
    assert Tiles(128, 64, 8, 3) in rows
    assert Tiles(128, 128, 8, 2) in rows
    assert Tiles(16, 16, 8, 1) not in rows
    assert Tiles(256, 256, 4, 1) not in rows
    rows = tune.grid(parser.parse_args(["product", "--block-q", "64", "--block-k", "64"]))
    assert {(tiles.block_q, tiles.block_k) for tiles in rows} == {(64, 64)}


@pytest.fixture
def attempts(monkeypatch):
    """What a GPU would answer, by tiles; the table is written as the real attempt writes it."""
    answers = {}

    def attempt(candidate):
        rows = tune.TUNABLE[candidate.target].rows
        rows["sm_00", 2, 64] = candidate.tiles
        answer = answers[candidate.tiles]
        if isinstance(answer, Exception):
            raise answer
        return answer, 0 if answer else 12

    class Stream:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(tune, "attempt", attempt)
    monkeypatch.setattr(tune, "stop_if_lost", lambda *_: None)
    monkeypatch.setattr(tune, "architecture", lambda _: "sm_00")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(
        tune.timing, "sampler", lambda work, *_: tune.timing.Sampler("graph", lambda: work, 1.0)
    )
    return answers


def test_a_candidate_is_timed_and_leaves_the_table_as_it_was(attempts):
    before = dict(tune.TUNABLE["fa2-forward"].rows)
    attempts[Tiles(1, 2, 3, 4)] = 5.0
    row = tune.result("fa2-forward", Tiles(1, 2, 3, 4), [PROBLEM, PROBLEM])
    assert (row["block_q"], row["block_k"], row["warps"], row["stages"]) == (1, 2, 3, 4)
    assert (row["time_us"], row["times_us"], row["failed"]) == (5.0, "5.000 5.000", "")
    assert dict(tune.TUNABLE["fa2-forward"].rows) == before


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (tune.WrongAnswer("wrong: off"), "wrong: off"),
        (RuntimeError("out of resource: shared memory"), "out of resource"),
        (0.0, "spills 12 registers"),
    ],
)
def test_what_does_not_do_is_out(answer, words, attempts):
    before = dict(tune.TUNABLE["fa2-forward"].rows)
    attempts[Tiles(1, 1, 1, 1)] = answer
    row = tune.result("fa2-forward", Tiles(1, 1, 1, 1), [PROBLEM])
    assert row["time_us"] == ""
    assert words in row["failed"]
    assert dict(tune.TUNABLE["fa2-forward"].rows) == before


@pytest.mark.gpu
def test_a_real_candidate_on_a_gpu():
    row = tune.result("fa2-forward", Tiles(64, 64, 4, 2), [square(1, 2, 512, 64)])
    assert (row["failed"], row["spills"]) == ("", 0)
    row = tune.result("fa2-forward", Tiles(256, 256, 4, 8), [square(1, 2, 512, 128)])
    assert row["failed"]
