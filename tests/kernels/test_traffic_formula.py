"""Bytes by formula: known cases by hand, what is not to be had in a sentence, and that no kernel is run."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

import pytest
import torch

from kernels import Problem
from kernels.tile_sizes import Tiles, as_if_on, pick, row_for
from kernels.traffic import (
    DIRECTIONS,
    KernelTraffic,
    Traffic,
    TrafficError,
    compulsory,
    formula,
    law,
)

N, D = 1370, 64
ONE_HEAD = Problem(1, 1, N, N, D, "float16")
MATRIX = N * 1376 * 2  # stored rows are a multiple of 16
OURS = ("naive", "fa1", "fa2")


def test_fa2_by_hand():
    """22 tiles of 64 queries, each past all keys and values; O and a float32 log-sum-exp once."""
    one = N * D * 2
    assert formula(ONE_HEAD, "fa2", gpu="sm_90") == Traffic.of(
        "formula", [KernelTraffic("forward_kernel", one + 22 * 2 * one, one + 4 * N)]
    )


def test_fa1_by_hand():
    """11 tiles of 128 keys: Q eleven times; ten times a float32 O, m and l are kept and fetched."""
    one, state = N * D * 2, N * (D + 2) * 4
    found = formula(ONE_HEAD, "fa1", gpu="sm_90")
    assert found.bytes_read == 2 * one + 11 * one + 10 * state
    assert found.bytes_written == 10 * state + one + 4 * N


def test_naive_by_hand():
    """S from 11 tiles either way, P over it in one reading, and V once for each of 11 tiles of rows."""
    one = N * D * 2
    assert formula(ONE_HEAD, "naive", gpu="sm_90").detail == (
        KernelTraffic("pairs_kernel", 11 * one + 11 * one, MATRIX),
        KernelTraffic("softmax_kernel", MATRIX, MATRIX + 4 * N),
        KernelTraffic("sums_kernel", MATRIX + 11 * one, one),
    )


def test_a_row_too_long_for_the_chip_is_read_twice():
    short, long = (Problem(1, 1, 8, keys, D, "float16") for keys in (16384, 16385))
    softmax = [formula(p, "naive", gpu="any").detail[1] for p in (short, long)]
    assert softmax[0].bytes_read == 8 * 16384 * 2
    assert softmax[1].bytes_read == 2 * 8 * 16400 * 2


def test_a_causal_mask_spares_half():
    """Of a long square; the tiles on the diagonal are whole."""
    plain = Problem(1, 1, 8192, 8192, D, "float16")
    for name in ("fa1", "fa2"):
        for direction in DIRECTIONS:
            found = [
                formula(dataclasses.replace(plain, causal=causal), name, direction, "any").total
                for causal in (False, True)
            ]
            assert 0.5 < found[1] / found[0] < 0.53, (name, direction)


@pytest.mark.parametrize("name", OURS)
def test_both_passes_are_the_sum_of_each(name):
    problem = Problem(2, 6, 197, 130, 40, "float16", causal=True, kv_heads=2)
    both = formula(problem, name, "forward+backward", "any")
    parts = [formula(problem, name, part, "any") for part in ("forward", "backward")]
    assert both.detail == parts[0].detail + parts[1].detail
    assert (both.bytes_read, both.bytes_written, both.source) == (
        sum(part.bytes_read for part in parts),
        sum(part.bytes_written for part in parts),
        "formula",
    )


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_million_tokens_are_answered_at_once(name, direction, causal):
    begun = time.process_time()
    assert formula(Problem(1, 6, 10**6, 10**6, 64, "bfloat16", causal), name, direction).total > 0
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_kernel_moves_less_than_it_must(name, direction):
    for queries, keys in ((1, 1), (197, 197), (65, 300), (1370, 1370)):
        problem = Problem(2, 4, queries, keys, 64, "float16", kv_heads=2)
        least = compulsory(problem, stores_matrix=name == "naive", direction=direction)
        found = formula(problem, name, direction, "any")
        assert found.bytes_read >= least.bytes_read
        assert found.bytes_written >= least.bytes_written


def test_the_least_by_hand():
    one, matrix = N * D * 2, N * N * 2
    flash, textbook = (compulsory(ONE_HEAD, stores) for stores in (False, True))
    assert (flash.bytes_read, flash.bytes_written) == (3 * one, one + 4 * N)
    assert (textbook.bytes_read, textbook.bytes_written) == (
        3 * one + 2 * matrix,
        one + 2 * matrix + 4 * N,
    )
    textbook = compulsory(ONE_HEAD, True, "backward")
    assert (textbook.bytes_read, textbook.bytes_written) == (
        7 * one + 5 * matrix,
        3 * one + 2 * matrix,
    )


def test_the_law_of_the_paper():
    """Standard attention grows with N^2; FlashAttention with N^2 d^2 / M, so with a d^2 / M-th of it."""
    sram = 228 * 1024
    long = Problem(1, 1, 10**6, 10**6, 64, "float16")
    standard, flash = (law(long, name, sram) for name in ("naive", "fa2"))
    assert standard == pytest.approx(2 * 10**12, rel=1e-3)
    assert flash / standard == pytest.approx(64**2 / (sram / 2), rel=0.01)
    assert law(long, "eager", sram) == standard
    assert law(long, "fa2", sram // 2) == pytest.approx(2 * flash, rel=0.01)
    # inputs are read once at least, however large the memory
    assert law(long, "fa2", 10**18) == pytest.approx(2 * 10**6 * 64)
    assert law(dataclasses.replace(long, heads=6), "fa2", sram) == pytest.approx(6 * flash)


def test_nothing_moves_where_there_is_nothing():
    for name in OURS:
        found = formula(Problem(1, 2, 0, 5, 64), name, "forward+backward")
        assert found == Traffic(0, 0, "formula", ())
    assert compulsory(Problem(0, 2, 5, 5, 64), True).total == 0


@pytest.mark.parametrize(
    ("change", "implementation", "direction", "gpu", "sentence"),
    [
        ({}, "eager", "forward", None, "loops of eager are not ours"),
        ({}, "sdpa-flash", "forward", None, "choose naive, fa1, fa2"),
        ({}, "fa2", "sideways", None, "not 'sideways'"),
        ({}, "fa2", "forward", "h200", "not 'h200'"),
        ({"head_dim": 257}, "fa1", "forward", None, "at most 256 dimensions, not 257"),
        ({"dtype": "float64"}, "fa2", "forward", None, "not float64"),
        ({"kv_heads": 2, "heads": 3}, "fa2", "forward", None, "cannot share 2"),
        ({"queries": -1}, "fa2", "forward", None, "negative"),
    ],
)
def test_what_has_no_formula_is_told_so(change, implementation, direction, gpu, sentence):
    problem = dataclasses.replace(ONE_HEAD, **change)
    with pytest.raises(TrafficError, match=sentence):
        formula(problem, implementation, direction, gpu)


def test_the_law_needs_a_memory():
    with pytest.raises(TrafficError, match="above zero"):
        law(ONE_HEAD, "fa2", 0)


def test_bytes_are_of_the_dtype():
    half, full = (dataclasses.replace(ONE_HEAD, dtype=d) for d in ("bfloat16", "float32"))
    assert formula(half, "naive", gpu="any") == formula(ONE_HEAD, "naive", gpu="any")
    assert formula(full, "naive", gpu="any").total > 1.9 * formula(half, "naive", gpu="any").total


# --- whose tiles ------------------------------------------------------------------------------------


TABLE = {
    ("any", 2, 64): Tiles(16, 16, 4, 1),
    ("sm_90", 2, 64): Tiles(32, 16, 4, 1),
    ("sm_90 odd", 2, 64): Tiles(64, 16, 4, 1),
}


def test_rows_go_by_the_name_of_a_gpu():
    assert row_for(TABLE, "sm_90", 2, 64).block_q == 32
    assert row_for(TABLE, "sm_90", 2, 40).block_q == 64
    assert row_for(TABLE, "sm_80", 2, 64).block_q == 16
    assert row_for(TABLE, "any", 2, 40).block_q == 16


def test_a_launch_can_take_another_gpus_rows():
    cpu = torch.device("cpu")
    with as_if_on("sm_90"):
        with as_if_on(None):
            assert pick(TABLE, cpu, 2, 64).block_q == 16
        assert pick(TABLE, cpu, 2, 64).block_q == 32
    assert pick(TABLE, cpu, 2, 64).block_q == 16


def test_the_formula_needs_no_triton():
    code = (
        "import sys; from kernels import Problem; from kernels.traffic import formula, counted;"
        "formula(Problem(1, 1, 9, 9, 64), 'fa2'); assert callable(counted);"
        "sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
