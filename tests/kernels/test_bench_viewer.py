"""The benchmark of whole programs: rows are whole, ratios are judged right, and what fails is said and not recorded."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import subprocess

import pytest

from kernels.bench import __main__ as command
from kernels.bench import run_viewer as bench
from kernels.bench.recipes import RECIPES, ViewerRecipe, ViewerTarget
from kernels.bench.record import append

RUN = {"tokens": 257, "device": "cpu", "dtype": "float32", "peak_bytes": 4e8, "sample": [[1.0]]}


@pytest.fixture
def workers(monkeypatch):
    """Answers of the worker processes by contestant; the processes themselves are not started."""
    answers = {}

    def answer(command, **_):
        name, more = command[3], command[6:]
        given = answers.get(name, RUN | {"time_ms": [10.0]})
        if isinstance(given, tuple):
            return subprocess.CompletedProcess(command, given[0], "", given[1])
        return subprocess.CompletedProcess(command, 0, json.dumps(given) if more else "", "")

    monkeypatch.setattr(bench.subprocess, "run", answer)
    monkeypatch.setattr(
        command, "machine", lambda commit: {"machine": "test", "commit": commit or ""}
    )
    return answers


def test_every_recipe_names_a_worker_that_exists():
    recipes = [recipe for recipe in RECIPES.values() if isinstance(recipe, ViewerRecipe)]
    assert recipes
    for recipe in recipes:
        assert importlib.util.find_spec(recipe.worker), recipe.name
        for target in recipe.targets:
            assert {target.ours, target.peer} <= set(recipe.contestants)


def test_medians_spread_and_verdicts(workers, tmp_path, capsys):
    workers["ours"] = RUN | {"time_ms": [9.0, 30.0, 10.0], "click_ms": 2.0, "survey_ms": 3.0}
    workers["transformers-sdpa"] = RUN | {"time_ms": [9.0], "peak_bytes": 2e8, "sample": None}
    out = tmp_path / "viewer.csv"
    assert command.main(["viewer", "--sizes", "224", "--rounds", "2", "--out", str(out)]) == 0
    rows = {row["contestant"]: row for row in csv.DictReader(out.open())}
    ours = rows["ours"]
    assert (ours["time_ms"], ours["time_low_ms"], ours["time_high_ms"]) == ("10.0", "9.0", "30.0")
    assert (ours["samples"], ours["peak_mb"], ours["click_ms"]) == ("6", "400.0", "2.0")
    said = capsys.readouterr().out
    assert (
        "time_ms at 224 px: ours / transformers-sdpa = 1.111, asked <= 1.050: NOT reached" in said
    )
    assert (
        "peak_mb at 224 px: ours / transformers-sdpa = 2.000, asked <= 1.100: NOT reached" in said
    )


def test_a_target_that_is_reached():
    row = {"side": 1, "device": "cpu", "time_ms": 5.0}
    rows = [row | {"contestant": "a"}, row | {"contestant": "b"}]
    (said,) = bench.verdicts(rows, (ViewerTarget("time_ms", "a", "b", 1.0),))
    assert said.endswith("= 1.000, asked <= 1.000: reached")
    assert not list(bench.verdicts(rows, (ViewerTarget("time_ms", "a", "b", 1.0, "cuda"),)))
    assert not list(bench.verdicts(rows, (ViewerTarget("time_ms", "a", "b", 1.0, sizes=(2,)),)))


def test_out_of_memory_is_a_row_and_not_an_end(workers, tmp_path):
    workers["transformers-eager"] = (1, "torch.OutOfMemoryError: CUDA out of memory")
    out = tmp_path / "viewer.csv"
    assert command.main(["viewer", "--sizes", "224", "--out", str(out)]) == 0
    rows = {row["contestant"]: row for row in csv.DictReader(out.open())}
    assert rows["transformers-eager"]["failed"] == "out of memory"
    assert rows["transformers-eager"]["time_ms"] == ""


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("ours", (1, "Traceback\nWeightsError: run `make weights`."), "run `make weights`"),
        ("transformers-eager", RUN | {"time_ms": [1.0], "sample": [[1.1]]}, "disagree"),
        ("transformers-eager", RUN | {"time_ms": [1.0], "sample": [[float("nan")]]}, "disagree"),
    ],
)
def test_nothing_is_recorded_when_it_went_wrong(name, given, words, workers, tmp_path, capsys):
    workers[name] = given
    out = tmp_path / "viewer.csv"
    assert command.main(["viewer", "--sizes", "224", "--out", str(out)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert words in said
    assert not out.exists()


def test_a_wrong_kernel_is_never_timed(workers, monkeypatch, capsys):
    failed = dataclasses.replace(bench.self_test(), passed=False, sentence="It is off.")
    monkeypatch.setattr(bench, "self_test", lambda: failed)
    assert command.main(["viewer", "--dry"]) == 2
    assert capsys.readouterr().err == "It is off.\n"


def test_rows_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "rows.csv"
    append(path, [{"a": 1}])
    append(path, [{"a": 2}])
    with pytest.raises(ValueError, match="other columns"):
        append(path, [{"b": 1}])
    assert path.read_text() == "a\n1\n2\n"
