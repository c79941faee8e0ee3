"""The bytes of fa3's backward pass: by hand, against the kernel's constants, and against the count by its twin."""

from __future__ import annotations

import dataclasses
import importlib
import time

import numpy as np
import pytest
import torch

from kernels import Problem
from kernels.tile_sizes import Tiles
from kernels.traffic import (
    KernelTraffic,
    TrafficError,
    compulsory,
    counted,
    counting_seconds,
    formula,
)
from kernels.traffic import loops_fa3_backward as loops
from kernels.traffic.formula import asked_of_l2
from kernels.traffic.ledger import Direction
from kernels.traffic.sizes import Sizes

INTERPRETED = pytest.mark.interpreter
PICTURE = Problem(1, 6, 1370, 1370, 64)

SHAPES = (
    PICTURE,
    Problem(16, 6, 1370, 1370, 64, "bfloat16"),  # more programs than a wave has room for
    Problem(2, 4, 700, 517, 96, kv_heads=2),
    Problem(1, 8, 333, 400, 128, kv_heads=1),
    Problem(1, 2, 1, 257, 40),
    Problem(1, 2, 128, 384, 64),
    Problem(1, 1, 3000, 300, 128),  # walks in two parts
    Problem(1, 1, 4100, 390, 72),  # in four, the last tile of keys not full
    Problem(2, 33, 2100, 300, 96),  # a wave walked whole, 66 walks cut
)
CAUSAL = (
    dataclasses.replace(PICTURE, causal=True),
    Problem(2, 4, 700, 317, 128, kv_heads=2, causal=True),  # the first queries see nothing
    Problem(1, 3, 1000, 300, 64, causal=True),
    Problem(1, 2, 300, 1300, 40, causal=True),
)
BY_FA2 = (
    Problem(1, 3, 197, 197, 64),
    Problem(1, 2, 300, 300, 136),
    Problem(1, 2, 300, 300, 32, causal=True),
)


@INTERPRETED
@pytest.mark.parametrize("problem", [*SHAPES, *CAUSAL, *BY_FA2], ids=str)
def test_the_formula_equals_the_count(problem):
    """Each launch, byte for byte."""
    found = counted(problem, "fa3", "backward", in_worker=False)
    assert found.detail == formula(problem, "fa3", "backward").detail
    assert found.source == "counted"


@INTERPRETED
@pytest.mark.parametrize(
    "problem",
    [
        Problem(1, 2, 129, 300, 64, "float16"),
        Problem(1, 2, 130, 257, 128, "float16", kv_heads=1),
        Problem(1, 1, 460, 290, 64, "float16", causal=True),
        Problem(1, 8, 600, 260, 64, "float16", kv_heads=1),
    ],
    ids=str,
)
def test_counting_without_values_skips_nothing(problem):
    """Every program on real numbers: turns too, on which the reading of the sums hangs."""
    from kernels.traffic.counted import launch
    from kernels.traffic.counting import counting

    with counting(values=True) as count, np.errstate(all="ignore"):
        launch(problem, "fa3", "backward", device="cpu")
    assert tuple(count.launches) == counted(problem, "fa3", "backward", in_worker=False).detail


@INTERPRETED
def test_both_passes_are_the_sum_of_each():
    problem = Problem(1, 2, 100, 330, 64)
    both = formula(problem, "fa3", "forward+backward")
    parts = [formula(problem, "fa3", part).detail for part in ("forward", "backward")]
    assert both.detail == parts[0] + parts[1]
    assert counted(problem, "fa3", "forward+backward", in_worker=False).detail == both.detail


@INTERPRETED
@pytest.mark.parametrize("problem", [PICTURE, *BY_FA2], ids=str)
def test_other_gpus_change_nothing(problem):
    for of in (formula, lambda *asked, gpu: counted(*asked, gpu=gpu, in_worker=False)):
        assert of(problem, "fa3", "backward", gpu="any") == of(
            problem, "fa3", "backward", gpu="sm_90"
        )


@INTERPRETED
def test_the_constants_are_the_kernels():
    from kernels.fa3 import backward_edges, backward_turns, twin_backward

    backward = importlib.import_module(
        "kernels.fa3.backward"
    )  # the package has a function of this name
    for name in ("NARROW_HEAD_DIM", "WIDE_HEAD_DIM", "FEW_KEYS", "BLOCK_K", "BLOCK_Q"):
        assert getattr(loops, name) == getattr(backward, name), name
    assert loops.PIECE == backward_edges.PIECE
    assert backward_turns.PIECE_ROWS.value * backward_turns.PIECE_WIDTH.value == loops.PIECE
    assert backward.multiprocessors(torch.device("cpu")) == twin_backward.PROGRAMS
    assert loops.PROGRAMS == twin_backward.PROGRAMS
    for problem in [*SHAPES, *CAUSAL, *BY_FA2]:
        sizes = Sizes.of(problem, "sm_90")
        assert loops.in_one_pass(sizes) == backward.in_one_pass(problem), problem


def test_a_picture_by_hand():
    """6 heads of 11 tiles of 128 queries and as many of 128 keys: 121 meetings a head, each with 32 KiB of dQ."""
    one, heads, n, tile = 64 * 2, 6, 1370, 128
    sums = 128 * 64 * 4
    prepare, main, finish = formula(PICTURE, "fa3", "backward").detail
    assert prepare == KernelTraffic(
        "prepare_kernel",
        bytes_read=heads * n * (2 * one + 4),
        bytes_written=heads * 11 * (2 * tile * 4 + 2 * 4) + 4,
    )
    facts, turns, tickets = 2 * tile * 4, 2 * 4, heads * 11 * 4
    assert main.kernel == "pass_kernel"
    assert main.bytes_written == heads * (2 * n * one + 121 * (sums + turns)) + tickets
    assert main.bytes_read == tickets + heads * (
        2 * n * one + 11 * 2 * n * one + 121 * (facts + turns) + (121 - 11) * sums
    )
    assert finish == KernelTraffic(
        "finish_kernel",
        bytes_read=heads * 11 * (sums + turns),
        bytes_written=heads * n * one,
    )


def test_a_walk_that_is_cut_by_hand():
    """3 tiles of keys, whose walks along 47 tiles of 64 queries are cut in two: 6 programs in place of 3."""
    one, keys, sums = 128 * 2, 300, 3 * 2 * 2 * 128 * 128 * 4
    _, main, parts, _ = formula(Problem(1, 1, 3000, keys, 128), "fa3", "backward").detail
    shares, others = 3 * 47 * 64 * 128 * 4, 3 * 47 * (2 * 64 * 4 + 2 * 4) + 6 * 4
    assert main.bytes_read == (2 * 2 * keys * one + 3 * 2 * 3000 * one + shares * 2 // 3 + others)
    assert main.bytes_written == sums + shares + 3 * 47 * 2 * 4 + 6 * 4
    assert parts == KernelTraffic("parts_kernel", sums, 2 * keys * one)


def test_what_l2_reads_to_add_up_does_not_come_to_a_multiprocessor():
    """Of a head 110 of 121 shares of dQ find another one there."""
    traffic = formula(PICTURE, "fa3", "backward")
    read, written = asked_of_l2(PICTURE, "fa3", "backward")
    assert traffic.bytes_read - read == 6 * 110 * 128 * 64 * 4
    assert written == traffic.bytes_written
    plain_ones: tuple[tuple[Problem, str, Direction], ...] = (
        (PICTURE, "fa3", "forward"),
        (PICTURE, "fa2", "backward"),
        (BY_FA2[0], "fa3", "backward"),
    )
    for problem, name, direction in plain_ones:
        plain = formula(problem, name, direction)
        assert asked_of_l2(problem, name, direction) == (plain.bytes_read, plain.bytes_written)


def test_a_causal_mask_spares_half_and_queries_that_see_nothing():
    long = Problem(1, 1, 16384, 16384, 64)
    whole, half = (
        formula(dataclasses.replace(long, causal=c), "fa3", "backward").total for c in (0, 1)
    )
    assert 0.5 < half / whole < 0.52
    finish = formula(Problem(1, 1, 640, 300, 64, causal=True), "fa3", "backward").detail[-1]
    assert finish.bytes_read == 3 * 128 * 64 * 4 + 5 * 2 * 4  # 340 queries see nothing: two tiles


@pytest.mark.parametrize("causal", [False, True])
def test_no_less_than_it_must_and_a_million_tokens_at_once(causal):
    begun = time.process_time()
    problem = Problem(1, 6, 10**6, 10**6, 64, "bfloat16", causal)
    found = formula(problem, "fa3", "backward")
    assert time.process_time() - begun < 1.0
    least = compulsory(problem, False, "backward")
    assert found.bytes_read > least.bytes_read
    assert found.bytes_written > least.bytes_written


def test_dq_in_memory_is_most_of_it_and_less_than_a_second_pass():
    """fa3 moves dQ in float32 at every meeting; fa2 reads everything once more, in tiles half as large."""
    long = Problem(1, 16, 16384, 16384, 64)
    ours = formula(long, "fa3", "backward").total
    dq = 2 * 16 * 128 * 128 * (128 * 64 * 4)  # written, and read, at 128 x 128 meetings
    assert 0.6 < dq / ours < 0.7
    assert 1.3 < formula(long, "fa2", "backward", gpu="sm_90").total / ours < 1.4


@pytest.mark.parametrize("problem", [PICTURE, Problem(1, 3, 300, 500, 128, causal=True)], ids=str)
def test_what_it_needs_besides(problem):
    """By the tensors that the launcher makes."""
    prepared = formula(problem, "fa3", "backward").detail[0].bytes_written
    sums = formula(dataclasses.replace(problem, causal=False), "fa3", "backward").detail[-1]
    needed = loops.workspace_bytes(Sizes.of(problem, "sm_90"))
    turns = loops.pieces_of(Sizes.of(problem, "sm_90")) * 4
    assert needed == prepared + sums.bytes_read - turns


def test_the_forecast_of_a_count_grows_with_the_work():
    """Heads are alike, so many of them take hardly longer; a causal mask makes every tile of keys another."""
    seconds = [
        counting_seconds(Problem(1, 6, n, n, 64), "fa3", "backward") for n in (300, 1370, 21905)
    ]
    assert seconds == sorted(set(seconds))
    many, causal = dataclasses.replace(PICTURE, batch=16), dataclasses.replace(PICTURE, causal=True)
    assert seconds[1] < counting_seconds(many, "fa3", "backward") < 2 * seconds[1]
    assert seconds[1] < counting_seconds(causal, "fa3", "backward")


def test_with_tiles_of_ones_own_there_is_no_backward_pass():
    with pytest.raises(TrafficError, match="own tiles only"):
        formula(PICTURE, "fa3", "backward", tiles=Tiles(64, 64, 4, 1))


@pytest.mark.parametrize("direction", ["backward", "forward+backward"])
def test_what_fa3_does_not_take_is_told_so(direction):
    for of in (formula, counted):
        with pytest.raises(TrafficError, match="not float32"):
            of(dataclasses.replace(PICTURE, dtype="float32"), "fa3", direction)
