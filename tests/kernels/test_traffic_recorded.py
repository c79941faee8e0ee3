"""What an H200's counters said, held against what our formula says today."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest

from kernels.bench.judge import problem_of
from kernels.bench.record import RESULTS
from kernels.traffic import formula
from kernels.traffic.formula import asked_of_l2


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def requests() -> dict[tuple, list[dict[str, str]]]:
    """The launches of each call whose requests were measured."""
    found = defaultdict(list)
    for row in rows_of("l2_requests.csv"):
        found[problem_of(row), row["implementation"], row["direction"]].append(row)
    return found


REQUESTS = requests()
IDS = [" ".join(map(str, key)) for key in REQUESTS]


@pytest.mark.parametrize("key", REQUESTS, ids=IDS)
def test_the_formula_is_what_the_kernels_ask_of_l2_within_three_percent(key):
    launches = REQUESTS[key]
    traffic = formula(*key, gpu="sm_90")
    read = sum(int(one["asked_of_l2"]) for one in launches)
    written = sum(int(one["sent_to_l2"]) for one in launches)
    assert [one["kernel"] for one in launches] == [part.kernel for part in traffic.detail]
    formula_read, formula_written = asked_of_l2(*key, gpu="sm_90")
    assert formula_read == pytest.approx(read, rel=0.03)
    assert formula_written == pytest.approx(written, rel=0.03)


@pytest.mark.parametrize(
    "key", [key for key in REQUESTS if key[2] == "forward" and key[1] != "fa3"]
)
def test_a_forward_pass_asks_l1_for_exactly_the_formula(key):
    # TMA, which brings fa3's tiles, goes past L1.
    traffic = formula(*key, gpu="sm_90")
    asked = [int(one["asked_of_l1"]) for one in REQUESTS[key]]
    assert asked == [part.bytes_read for part in traffic.detail]


def test_the_naive_kernels_move_a_hundred_times_the_dram_bytes_of_fa2():
    moved = {
        (row["implementation"], row["cache"]): int(row["bytes_read"]) + int(row["bytes_written"])
        for row in rows_of("traffic.csv")
        if row["source"] == "measured" and (row["batch"], row["queries"]) == ("1", "5477")
    }
    for cache in ("cold", "warm"):
        assert moved["naive", cache] > 100 * moved["fa2", cache] > 0


def test_the_copy_of_known_size_was_measured_within_two_percent():
    measured = [row for row in rows_of("traffic.csv") if row["source"] == "measured"]
    assert measured
    for row in measured:
        for way in ("read", "written"):
            share = int(row[f"calibration_{way}"]) / int(row["calibration_expected"])
            assert share == pytest.approx(1, abs=0.02)


def test_what_was_counted_equals_the_formula_of_today():
    counted = [row for row in rows_of("traffic.csv") if row["source"] == "counted"]
    assert counted
    for row in counted:
        traffic = formula(problem_of(row), row["implementation"], row["direction"], gpu="sm_90")
        assert (int(row["bytes_read"]), int(row["bytes_written"])) == (
            traffic.bytes_read,
            traffic.bytes_written,
        )
