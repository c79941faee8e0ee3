"""fa3's bytes: by hand against the kernel's own constants, and against the count through its twin, to the byte."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest

from kernels import Problem
from kernels.traffic import KernelTraffic, TrafficError, counted, formula
from kernels.traffic.loops_fa3 import BLOCKS_AND_KEYS, FEW_ROWS, PROGRAMS, Pieces
from kernels.traffic.sizes import Sizes

INTERPRETED = pytest.mark.interpreter
PICTURE = Problem(1, 6, 1370, 1370, 64)

SHAPES = (
    # one wave that is split along the keys; many waves with a rest that is, and one that is not
    PICTURE,
    Problem(1, 9, 1370, 1370, 64),
    Problem(1, 6, 5477, 5477, 64, "bfloat16"),
    Problem(2, 16, 1024, 2048, 64),
    # few short heads in equal shares of queries
    Problem(16, 6, 1370, 1370, 64),
    Problem(5, 20, 500, 400, 64),
    # other widths: two blocks a tile, padding to a tile, tiles of 64 keys
    Problem(1, 16, 1370, 1370, 128),
    Problem(1, 7, 700, 700, 96),
    Problem(1, 3, 700, 700, 256),
    Problem(1, 3, 700, 700, 136),
    Problem(1, 3, 700, 700, 40),
    # shared heads; more keys than queries, and fewer; one query; one tile of keys
    Problem(2, 6, 700, 400, 64, kv_heads=2),
    Problem(1, 2, 60, 5000, 64),
    Problem(1, 2, 5000, 330, 64),
    Problem(1, 6, 1, 1370, 64),
    Problem(1, 2, 400, 100, 128),
)
CAUSAL = (
    dataclasses.replace(PICTURE, causal=True),
    Problem(2, 6, 700, 400, 64, causal=True, kv_heads=2),
    Problem(1, 3, 400, 900, 128, causal=True),
    Problem(1, 3, 900, 400, 256, causal=True),
)
SHORT = (
    Problem(1, 12, 197, 197, 64),
    Problem(64, 12, 197, 197, 64, "bfloat16"),
    Problem(16, 12, 257, 257, 64, causal=True),
    Problem(40, 12, 700, 257, 64),
    Problem(1, 3, 40, 300, 32, kv_heads=1),
)


@INTERPRETED
@pytest.mark.parametrize("problem", [*SHAPES, *CAUSAL, *SHORT], ids=str)
def test_the_formula_equals_the_count(problem):
    """Each launch, byte for byte; the twin takes its pieces from the Gluon kernel's own schedule."""
    found = counted(problem, "fa3", in_worker=False)
    assert found.detail == formula(problem, "fa3").detail
    assert found.source == "counted"


@INTERPRETED
def test_other_gpus_change_nothing():
    """fa3 runs on one GPU, so it has its tiles only."""
    small = Problem(1, 2, 330, 330, 64)
    for of in (formula, lambda *asked, gpu: counted(*asked, gpu=gpu, in_worker=False)):
        assert of(small, "fa3", gpu="any") == of(small, "fa3", gpu="sm_90")


@INTERPRETED
def test_the_constants_are_the_kernels():
    from kernels.fa3 import forward_again, schedule, twin, twin_launch
    from kernels.fa3.forward import FORMS, MOST_KEYS_OF_FEW
    from kernels.fa3.merge import MERGED_ROWS
    from kernels.traffic import loops_fa3

    tiles = {width: (form.CONSUMERS, form.BLOCK_K) for width, form in FORMS.items()}
    assert tiles == BLOCKS_AND_KEYS
    assert loops_fa3.SPLIT_AT_MOST == schedule.SPLIT_AT_MOST
    assert loops_fa3.L2_BYTES == schedule.L2_BYTES
    assert loops_fa3.MOST_PARTS == schedule.MOST_PARTS
    assert loops_fa3.MOST_KEYS_OF_FEW == MOST_KEYS_OF_FEW
    assert loops_fa3.ROWS == schedule.ROWS.value == twin_launch.ROWS
    assert twin_launch.PROGRAMS == PROGRAMS
    assert forward_again.MOST == 2.0**twin.MOST_RISE
    assert all(n * 64 % MERGED_ROWS[width] == 0 for width, (n, _) in BLOCKS_AND_KEYS.items())


@INTERPRETED
@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_the_plan_is_the_kernels(problem):
    """What is split, and into which shares, beside `plan_for`, which the launcher asks."""
    from kernels.fa3.schedule import plan_for

    pieces = Pieces.of(Sizes.of(problem, "sm_90"))
    order, plan = plan_for(problem, pieces.consumers, pieces.block_k, PROGRAMS)
    assert (order == 0) == pieces.in_shares
    if not pieces.in_shares:
        assert plan.whole == pieces.all_tiles - pieces.split
        assert plan.share == (pieces.share if pieces.split else 0)


@pytest.mark.parametrize(
    ("problem", "tiles"),
    [
        (PICTURE, 22),  # 132 blocks of 64 queries: each has a multiprocessor
        (Problem(1, 11, 12 * 192, 1000, 64), 12),  # 132 tiles of 192: one wave to the last
    ],
    ids=str,
)
def test_whole_waves_read_keys_once_for_each_tile_of_queries(problem, tiles):
    heads, queries, keys, one = problem.heads, problem.queries, problem.keys, 64 * 2
    assert formula(problem, "fa3").detail == (
        KernelTraffic(
            "forward_kernel",
            bytes_read=heads * (queries + tiles * 2 * keys) * one,
            bytes_written=heads * queries * (one + 4),
        ),
    )


def test_split_tiles_by_hand():
    """9 heads of 8 tiles of 192 queries are 72, less than a wave of 132: 11 tiles of keys are cut in shares of 6.

    72 × 11 = 792 meetings, 6 for each multiprocessor. Shares end after 6, 12, 18 ... of them, tiles after 11, 22
    ...: 132 + 72 − 12 parts, for after every 66th meeting both end at once.
    """
    problem = Problem(1, 9, 1370, 1370, 64)
    one, heads, parts = 64 * 2, 9, 192
    found = formula(problem, "fa3")
    part = 64 * 4 + 4  # float32: an output and a log-sum-exp, which the merge reads twice
    forward, merge = found.detail
    assert (forward.kernel, merge.kernel) == ("forward_kernel", "merge_kernel")
    pieces = list(Pieces.of(Sizes.of(problem, "sm_90")).parts())
    assert len(pieces) == parts
    queries = sum(min(192, 1370 - tile % 8 * 192) for tile, _, _ in pieces)
    assert forward.bytes_read == queries * one + heads * 8 * 1370 * 2 * one
    blocks = sum(1 if tile % 8 == 7 else 3 for tile, _, _ in pieces)  # of 64 queries; 22 in all
    assert forward.bytes_written == blocks * 64 * part
    assert merge == KernelTraffic(
        "merge_kernel", parts * 192 * (part + 4), heads * 1370 * (one + 4)
    )


def test_few_keys_in_one_piece():
    """Few heads: 4 tiles of 64 queries. Many: all queries of a head against keys that are brought once."""
    one, n = 64 * 2, 197
    few, many = Problem(1, 12, n, n, 64), Problem(64, 12, n, n, 64)
    (short,) = formula(few, "fa3").detail
    assert short.bytes_read == 12 * (n + math.ceil(n / FEW_ROWS) * 2 * n) * one
    (stream,) = formula(many, "fa3").detail
    assert stream.bytes_read == 64 * 12 * 3 * n * one
    assert stream.bytes_written == 64 * 12 * n * (one + 4)


def test_fewer_bytes_than_fa2_cross_from_l2():
    """Tiles of 192 queries in place of 64: keys and values are read a third as often."""
    long = Problem(1, 16, 16384, 16384, 64)
    ratio = formula(long, "fa2", gpu="sm_90").bytes_read / formula(long, "fa3").bytes_read
    assert 2.9 < ratio < 3.0


def test_a_million_tokens_are_answered_at_once():
    begun = time.process_time()
    for causal in (False, True):
        assert formula(Problem(1, 6, 10**6, 10**6, 64, "bfloat16", causal), "fa3").total > 0
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize(
    ("change", "direction", "sentence"),
    [
        ({"dtype": "float32"}, "forward", "multiplies float16 and bfloat16, not float32"),
        ({"head_dim": 60}, "forward", "multiple of 8, not 60"),
        ({"head_dim": 264}, "forward", "at most 256 dimensions"),
    ],
)
def test_what_has_no_formula_is_told_so(change, direction, sentence):
    problem = dataclasses.replace(PICTURE, **change)
    for of in (formula, counted):
        with pytest.raises(TrafficError, match=sentence):
            of(problem, "fa3", direction)


def test_nothing_moves_where_there_is_nothing():
    assert formula(Problem(1, 2, 0, 5, 64), "fa3").detail == ()
