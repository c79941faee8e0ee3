"""One picture on three real processes, against the model on one."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest
import torch

from kernels import attention_product
from tests.ranks import run_ranks, sentence_of
from tests.vit import ranks_work
from tests.vit.helpers import ROOT
from tests.vit.ranks_work import PICTURES, photo, query_of, side_of
from vit import MAPS
from vit.bench.parallel import Run, reason_against, sentence, times
from vit.maps.row import on_grid, row_tokens
from vit.parallel import trace_parallel
from vit.trace import Trace

CASES = [(name, size) for name in PICTURES for size in (1, 2, 3)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict]:
    """What each of three ranks found, in groups of three, two and one."""
    return run_ranks(3, ranks_work.every_picture, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def truths() -> dict[str, Trace]:
    """One process's own traces."""
    model = ranks_work.model()
    return {name: model.trace(photo(name), side_of(name)) for name in PICTURES}


def parts(answers: list[dict], name: str, size: int) -> list[dict]:
    return [answer[f"{name}, {size}"] for answer in answers[:size]]


@pytest.mark.parametrize(("name", "size"), CASES)
def test_the_trace_is_one_process_s_own(answers, truths, name, size):
    found, truth = parts(answers, name, size), truths[name]
    assert all(part["progress"] == [(1, 3), (2, 3), (3, 3)] for part in found)
    assert {part["implementation"] for part in found} == {truth.implementation}
    for number, expected in enumerate(truth.layers):
        for field in ("q", "k", "v", "log_sum_exp"):
            joined = torch.cat([getattr(part["layers"][number], field) for part in found], 2)
            true = getattr(expected, field)
            assert joined.shape == true.shape
            assert (joined - true).abs().max() <= 1e-5 * true.abs().max(), (number, field)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_every_map_is_one_process_s_own(answers, truths, name, size):
    first, *others = parts(answers, name, size)
    truth, query = truths[name], query_of(name)
    for number, layer in enumerate(truth.layers):
        received = attention_product(None, layer.q, layer.k, layer.log_sum_exp, truth.scale)[0]
        expected = {
            "row": MAPS["row"](truth, number, query),
            "column": MAPS["column"](truth, number, query),
            "received": on_grid(received, truth),
            "row tokens": row_tokens(truth, number, query),
        }
        for kind, true in expected.items():
            found = first[kind][number]
            assert found.shape == true.shape, kind
            assert (found - true).abs().max() <= 1e-5 * max(1.0, true.max()), (kind, number)
    assert all(other[kind] is None for other in others for kind in ("row", "column", "received"))


def test_the_layers_are_told_apart_by_their_attention(truths):
    """Else a ring that mixed nothing would pass: the keys must count in what comes after."""
    truth = truths["square"]
    rows = row_tokens(truth, 1, (2, 1))
    assert rows.max() > 20 / truth.tokens
    assert (truth.layers[1].q - truth.layers[2].q).abs().max() > 0.1


def test_a_rank_holds_its_own_tokens_only(answers, truths):
    found = parts(answers, "square", 3)
    tokens = [part["layers"][0].q.shape[2] for part in found]
    assert sum(tokens) == truths["square"].tokens == 3 + 121
    assert max(tokens) - min(tokens) <= 1
    assert [part["first"] for part in found] == [0, 42, 83]


@pytest.mark.parametrize("rows", [range(3), range(2, 5), range(4, 11), range(0)])
def test_a_strip_of_pixels_is_cut_from_the_same_picture(rows):
    config, picture = ranks_work.CONFIG, photo("square")
    grid = picture.grid(11 * 14)
    whole = picture.pixels(grid, config.mean, config.std)
    strip = picture.pixels(grid, config.mean, config.std, rows=rows)
    assert torch.equal(strip, whole[:, :, 14 * rows.start : 14 * rows.stop])


def test_refusals(answers):
    for answer in answers:
        no_map, no_patch, no_side, no_implementation = answer["refusals"]
        assert no_map.startswith("ValueError: there is no map 'rows' of a split trace")
        assert no_patch.startswith("ValueError: patch 2,0 is outside")
        assert "size must be a positive number" in no_side
        assert no_implementation.startswith("ValueError: implementation 'fa9' is not known")


def test_the_benchmark_compares_one_with_all(answers):
    row, *others = (answer["bench"] for answer in answers)
    assert others == [None, None]
    assert (row["tokens"], row["layers"], row["ranks"]) == (124, 2, 3)
    for what in ("trace", "all"):
        ratio = row[f"{what}_one_s"] / row[f"{what}_split_s"]
        assert row[f"{what}_ratio"] == pytest.approx(ratio, rel=1e-3)
    assert row["all_one_s"] > row["trace_one_s"] > 0
    for kind in ("row", "column", "received"):
        assert float(row[f"{kind}_difference"]) <= 1e-4
    assert 0 < float(row["float64_error"]) <= 1e-5
    assert "124 tokens, 2 layers, torch-cpu-flash" in sentence(row)
    assert " GB " not in sentence(row), "a CPU counts no peak"


@pytest.mark.parametrize("one_s", [1.8e-6, 1.8e-3, 31.23456])
def test_ratios_agree_with_their_seconds_however_short(one_s):
    def run(seconds: float) -> Run:
        return Run(iter(()), lambda layer: [], torch.device("cpu"), seconds, seconds / 3)

    row = times(run(one_s), run(7.21 * one_s))
    for what in ("trace", "all"):
        assert row[f"{what}_ratio"] == pytest.approx(1 / 7.21, rel=1e-3)
        ratio = row[f"{what}_one_s"] / row[f"{what}_split_s"]
        assert row[f"{what}_ratio"] == pytest.approx(ratio, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "value", "recorded"),
    [
        ("row_difference", "5e-2", True),
        ("received_difference", "2e-1", False),
        ("column_difference", "nan", False),
        ("float64_error", "2e-3", False),
        ("float64_error", "nan", False),
    ],
)
def test_the_benchmark_records_nothing_that_is_wrong(answers, name, value, recorded):
    right = answers[0]["bench"]
    assert reason_against(right) is None
    reason = reason_against(right | {name: value})
    assert (reason is None) is recorded
    assert reason is None or "nothing is recorded" in reason


def test_the_benchmark_refuses_a_side_that_is_no_grid(answers):
    for answer in answers:
        assert answer["no side"].startswith("BenchError: The side must be a multiple of the patch")


@pytest.mark.slow
def test_the_recipe_under_torchrun(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    recipe = ["-m", "vit.bench.parallel", "--side", "42", "--layers", "2", "--commit", "abc"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", *recipe, "--out", str(tmp_path / "parallel.csv")],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("42 px, 10 tokens, 2 layers, torch-cpu-flash, float32: ")
    with (tmp_path / "parallel.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["recipe"], row["ranks"], row["commit"]) == ("parallel", "2", "abc")
    assert float(row["float64_error"]) < 1e-5


def test_without_a_process_group():
    refused = sentence_of(lambda: trace_parallel(ranks_work.model(), photo("one patch"), 14))
    assert "start with torchrun" in refused
