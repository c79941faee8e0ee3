"""What a call will take: the formula against what a process took, and the sentences."""

from __future__ import annotations

import threading
import time

import psutil
import pytest
import torch

from kernels import Problem
from kernels.bench import peak
from kernels.bench.forecast import needed_bytes, peak_bytes, refusal
from kernels.bench.peak import NoPeak, measured_peak, why_it_died
from kernels.eager import MOST_SCORES
from kernels.registry import AUTO, IMPLEMENTATIONS

CPU, GPU = torch.device("cpu"), torch.device("cuda")
VIT = Problem(1, 6, 1370, 1370, 64, "float32")
WITHIN = 1.15
"""Formula and process differ by less than this factor, beside what the system and torch's threads add,"""
BESIDE = 3e6
"""in bytes."""
DIRECTIONS = ("forward", "backward", "forward+backward")
on_linux = pytest.mark.skipif(not psutil.LINUX, reason="the memory limit of a process is Linux's")


# --- the formula ------------------------------------------------------------------------------------


def test_naive_stores_one_padded_matrix_forward_and_two_backward():
    half = Problem(2, 3, 100, 197, 64, "float16")
    matrix, row = 2 * 3 * 100 * 208 * 2, 2 * 3 * 100  # 197 columns are stored as 208
    output = row * 64 * 2
    assert peak_bytes(half, "naive") == matrix + output + 4 * row
    grads = output + 2 * (2 * 3 * 197 * 64 * 2)
    assert peak_bytes(half, "naive", "backward") == matrix + grads
    assert peak_bytes(half, "naive", "forward+backward") == 2 * matrix + output + 4 * row + grads


def test_fa2_stores_nothing_of_the_size_of_a_matrix():
    half = Problem(1, 6, 5477, 5477, 64, "bfloat16")
    one, vector = 6 * 5477 * 64 * 2, 6 * 5477 * 4
    assert peak_bytes(half, "fa2") == one + vector
    assert peak_bytes(half, "fa2", "backward") == 3 * one + vector
    assert needed_bytes(half, "fa2") == 4 * one + vector
    assert needed_bytes(half, "fa2", "backward") == 4 * one + one + vector + 3 * one + vector


def test_fa3_keeps_the_parts_of_what_it_splits():
    """2 for each of 132 programs: 192 rows of a float32 output and a log-sum-exp; nothing where nothing is split."""
    parts = 2 * 132 * 192 * (64 + 1) * 4
    split, whole = Problem(1, 6, 5477, 5477, 64), Problem(1, 11, 12 * 192, 1000, 64)
    few, causal = Problem(1, 6, 197, 197, 64), Problem(1, 6, 5477, 5477, 64, causal=True)
    for problem, more in ((split, parts), (whole, 0), (few, 0), (causal, 0)):
        assert peak_bytes(problem, "fa3") - peak_bytes(problem, "fa2") == more


def test_fa3_holds_dq_in_float32_where_it_has_a_backward_pass_of_its_own():
    """43 tiles of 128 queries; two facts of each query, and a turn for each half of a tile."""
    rows, tiles = 6 * 43 * 128, 6 * 43
    split, few = Problem(1, 6, 5477, 5477, 64), Problem(1, 6, 197, 197, 64)
    grads = 3 * 6 * 5477 * 64 * 2
    more = rows * 64 * 4 + rows * 2 * 4 + tiles * 2 * 4 + 4
    assert peak_bytes(split, "fa3", "backward") == grads + more
    assert peak_bytes(few, "fa3", "backward") == peak_bytes(few, "fa2", "backward")


def test_fa1_adds_wide_scratch_in_half_precision_alone():
    half, full = (Problem(1, 2, 64, 64, 32, kind) for kind in ("float16", "float32"))
    vector = 2 * 64 * 4
    assert peak_bytes(half, "fa1") - peak_bytes(half, "fa2") == 2 * 64 * 32 * 4 + 2 * vector
    assert peak_bytes(full, "fa1") - peak_bytes(full, "fa2") == 2 * vector


def test_shared_heads_need_less_for_keys():
    shared = Problem(1, 6, 97, 97, 32, "float16", kv_heads=2)
    alone = Problem(1, 6, 97, 97, 32, "float16")
    assert needed_bytes(alone, "fa2") - needed_bytes(shared, "fa2") == 2 * 4 * 97 * 32 * 2


def test_eager_widens_a_share_of_the_scores_at_a_time():
    large = Problem(1, 6, 8000, 8000, 64, "float16")
    scores = 6 * 8000 * 8000
    share = MOST_SCORES // 8000 * 8000
    assert peak_bytes(large, "eager") == 2 * 2 * scores + 2 * 4 * share + 4 * 6 * 8000


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_implementation_has_a_forecast(name, direction):
    assert 0 < peak_bytes(VIT, name, direction) < needed_bytes(VIT, name, direction)


# --- the formula and a process ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eager", "torch-cpu-flash"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "problem",
    [VIT, Problem(2, 6, 700, 1500, 64, "float32", kv_heads=2)],
    ids=str,
)
def test_the_formula_is_near_what_a_process_took(name, direction, problem):
    took, said = measured_peak(problem, name, direction), peak_bytes(problem, name, direction)
    assert said / WITHIN - BESIDE < took < said * WITHIN + BESIDE


@pytest.mark.slow
def test_a_causal_mask_costs_eager_one_more_matrix_where_rows_go_in_parts():
    problem = Problem(1, 6, 4096, 4096, 32, "float32", causal=True)
    took, said = measured_peak(problem, "eager"), peak_bytes(problem, "eager")
    assert said == 3 * 6 * 4096**2 * 4
    assert said / WITHIN < took < said * WITHIN


@on_linux
def test_another_process_takes_under_half_a_second_more():
    small = Problem(1, 1, 64, 64, 32, "float32")
    measured_peak(small, "eager")  # the first starts the server that has torch ready
    times = []
    for _ in range(3):
        start = time.perf_counter()
        measured_peak(small, "eager")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5


# --- what goes wrong --------------------------------------------------------------------------------


@on_linux
def test_a_process_gets_no_more_than_what_is_free(monkeypatch):
    monkeypatch.setattr(peak, "available_bytes", lambda device: 60_000_000)
    with pytest.raises(NoPeak, match=r"eager ran out of memory: it needs 1\d\d MB\. Take fewer"):
        measured_peak(VIT, "eager")
    assert measured_peak(VIT, "torch-cpu-flash") > 0


def test_a_killed_process_is_a_sentence():
    found: list[str] = []

    def measure() -> None:
        with pytest.raises(NoPeak) as refused:
            measured_peak(Problem(1, 6, 4000, 4000, 64, "float32"), "eager", "forward+backward")
        found.append(str(refused.value))

    measured_peak(Problem(1, 1, 64, 64, 32, "float32"), "eager")
    before = set(psutil.Process().children(recursive=True))
    thread = threading.Thread(target=measure)
    thread.start()
    while not (new := set(psutil.Process().children(recursive=True)) - before):
        time.sleep(0.005)
    new.pop().kill()
    thread.join(20)
    assert "The system ended eager while its memory was measured; it needs about" in found[0]


def test_a_time_out_is_a_sentence_and_leaves_no_process():
    problem = Problem(1, 6, 4000, 4000, 64, "float32")
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(NoPeak, match="eager took longer than 0 s and was stopped"):
        measured_peak(problem, "eager", "forward", timeout_s=0.05)
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [one for one in left if one.memory_info().rss > 500e6]


@pytest.mark.parametrize("found", [100, 10**12])
def test_a_peak_that_cannot_be_forgotten_counts_only_where_it_is_passed(monkeypatch, found):
    """As on macOS: the largest size ever, of which nobody knows when it was."""
    sizes = iter((100, found))
    monkeypatch.setattr(peak, "forget_peak", lambda: False)
    monkeypatch.setattr(peak, "peak_rss_bytes", lambda: next(sizes))
    small = Problem(1, 1, 64, 64, 32, "float32")
    if found == 100:
        with pytest.raises(RuntimeError, match="its peak is below"):
            peak.growth(small, "eager", "forward")
    else:
        assert 0 < peak.growth(small, "eager", "forward") < 10**12


def test_other_ends_are_named():
    assert "signal 11" in why_it_died(-11, VIT, "eager", "forward")
    assert "code 3" in why_it_died(3, VIT, "eager", "forward")


# --- the sentences ----------------------------------------------------------------------------------


def test_what_does_not_fit_is_said_with_what_does():
    huge = Problem(1, 6, 79_000, 79_000, 64, "float16")
    said = refusal(huge, "naive", "forward", GPU, 24 * 10**9)
    assert said == "naive needs 75 GB here; this GPU has 24 GB free. fa2 needs 245 MB."
    assert refusal(huge, "fa2", "forward", GPU, 24 * 10**9) is None


def test_on_a_cpu_the_machine_and_its_own_flash_are_named():
    said = refusal(VIT, "eager", "forward", CPU, 50_000_000)
    assert (
        said
        == "eager needs 141 MB here; this machine has 50 MB free. torch-cpu-flash needs 9.0 MB."
    )


@pytest.mark.parametrize("device", [CPU, GPU])
def test_where_nothing_fits_the_size_is_to_blame(device):
    said = refusal(VIT, AUTO[device.type][0], "forward", device, 10)
    assert said is not None
    assert said.endswith("has 10 bytes free. Take fewer tokens, heads or pictures.")
