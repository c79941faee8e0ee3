"""The recipe of bytes: rows by formula and counted here, and what the verdicts say of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels import Problem
from kernels.bench import run_traffic
from kernels.bench.__main__ import main
from kernels.bench.recipes import RECIPES, TrafficRecipe
from kernels.bench.record import Row
from kernels.traffic import Traffic, TrafficError, formula
from kernels.traffic.measured import Measured
from kernels.traffic.profiled import Calibration

SMALL = Problem(1, 2, 70, 70, 64, "bfloat16")
RECIPE = TrafficRecipe("traffic", "", (SMALL,), ("eager", "naive", "fa2"), ("naive", "fa2"))
MEASURED = Measured(
    200,
    100,
    "measured",
    cache="warm",
    l2_read=1000,
    l2_written=100,
    l2_looked_up=600,
    time_us=5.0,
    calibration=Calibration(1000, 1010, 995),
    passes=1,
    gpu="Played",
    driver="1",
    ncu="2025.3",
    date="2026-11-30",
)  # fmt: skip


def row(name: str, found: Traffic | TrafficError, source: str, cache: str = "") -> Row:
    return run_traffic.row(RECIPE, (SMALL, name, "forward"), source, found, cache)


@pytest.mark.slow
def test_without_a_gpu_ours_are_counted_as_if_on_one():
    parts = list(run_traffic.run(RECIPE, {"machine": "here"}))
    rows = [row for part in parts for row in part]
    assert [(r["implementation"], r["source"]) for r in rows] == [
        ("naive", "formula"),
        ("naive", "counted"),
        ("fa2", "formula"),
        ("fa2", "counted"),
    ]
    assert all(r["machine"] == "here" and not r["failed"] for r in rows)
    said = list(run_traffic.verdicts(RECIPE, rows))
    assert [s.rpartition(": ")[2] for s in said] == ["formula equals counted"] * 2


def test_a_figure_that_could_not_be_had_leaves_its_reason():
    refused = row("fa2", TrafficError("No permission."), "measured", "cold")
    assert (refused["bytes_read"], refused["failed"]) == ("", "No permission.")
    assert list(run_traffic.verdicts(RECIPE, [refused])) == []


def test_a_count_that_is_off_is_named():
    known = formula(SMALL, "fa2", gpu="sm_90")
    off = replace(known, bytes_read=known.bytes_read + 1, source="counted")
    rows = [row("fa2", known, "formula"), row("fa2", off, "counted")]
    (said,) = run_traffic.verdicts(RECIPE, rows)
    assert said.endswith("formula does NOT equal counted")


@pytest.mark.parametrize(
    ("read", "word"), [(1070, "reached"), (1040, "reached"), (1140, "NOT reached")]
)
def test_the_formula_against_what_is_asked_of_l2(read, word):
    rows = [row("fa2", Traffic(read, 30, "formula"), "formula")]
    rows.append(row("fa2", MEASURED, "measured", "warm"))
    copied, said = run_traffic.verdicts(RECIPE, rows)
    assert "read 1.0100 and wrote 0.9950" in copied
    assert copied.endswith(": reached")
    assert said.endswith(f": {word}")


@pytest.mark.parametrize(("naive", "word"), [(30_003, "reached"), (29_997, "NOT reached")])
def test_a_hundred_times_the_dram_bytes(naive, word):
    recipe = replace(RECIPE, hundredfold=(SMALL,))
    rows = [row("fa2", MEASURED, "measured", "warm")]
    rows.append(row("naive", replace(MEASURED, bytes_read=naive - 100), "measured", "warm"))
    *_, said = run_traffic.verdicts(recipe, rows)
    assert said.endswith(f"asked more than 100: {word}")


def test_a_copy_that_is_off_is_named():
    off = replace(MEASURED, calibration=Calibration(1000, 1000, 970))
    (said,) = run_traffic.verdicts(RECIPE, [row("fa2", off, "measured", "warm")])
    assert said.endswith("NOT reached")


def test_the_recipe_records_what_was_asked():
    recipe = RECIPES["traffic"]
    assert isinstance(recipe, TrafficRecipe)
    sizes = {(p.batch, p.heads, p.queries, p.head_dim) for p in recipe.problems}
    assert {(1, 6, 5477, 64), (16, 6, 1370, 64), (1, 6, 21905, 64)} <= sizes
    assert {"naive", "fa2", "fa3"} <= set(recipe.contestants)


def test_the_contestants_that_are_named_alone():
    fewer = run_traffic.among(RECIPE, ["fa2", "eager"])
    assert (fewer.contestants, fewer.ours) == (("eager", "fa2"), ("fa2",))
    assert run_traffic.among(RECIPE, None) == RECIPE


def test_a_contestant_without_bytes_is_refused(capsys):
    assert main(["traffic", "--contestants", "fa2", "fa9", "--dry"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("fa9 has no bytes in traffic; choose from eager, naive")
