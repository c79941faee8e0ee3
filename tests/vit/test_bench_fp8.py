"""The FP8 study: its inputs, its errors and its verdict, without a GPU."""

from __future__ import annotations

import pytest
import torch

from kernels.bench.record import BenchError
from kernels.fp8 import reason
from vit.bench import fp8


def row(contestant: str, time_us: float, shape=fp8.ASKED_SHAPE) -> dict[str, object]:
    names = ("batch", "heads", "queries", "head_dim")
    return dict(zip(names, shape, strict=True)) | {"contestant": contestant, "time_us": time_us}


@pytest.mark.parametrize(("fa3_us", "word"), [(131.0, ": reached"), (129.0, ": NOT reached")])
def test_the_verdict_is_about_the_shape_that_was_asked(fa3_us, word):
    rows = [row("fp8", 100.0), row("fa3", fa3_us), row("fp8", 1.0, fp8.SHAPES[1])]
    (sentence,) = fp8.verdicts(rows)
    assert sentence.endswith(word)


def test_quantising_is_counted_in_a_verdict_of_its_own():
    rows = [row("fp8", 100.0), row("fp8 and quantize", 120.0), row("fa3", 150.0)]
    alone, whole = fp8.verdicts(rows)
    assert "1.50 times" in alone
    assert whole.startswith("fp8 and quantize / fa3")
    assert "1.25 times" in whole


def test_the_summary_has_a_line_for_each_input():
    made = row("sdpa", 0.0) | {"input": "cat", "layer": 3, "way": "torch", "error": "1e-3"}
    rows = [
        made | {"time_us": ""},
        made | {"time_us": "", "contestant": "fp8", "way": "kernel", "error": "2e-2"},
        made | {"time_us": "", "contestant": "fp8", "way": "reference", "error": "9e-2"},
        row("fp8", 100.0) | {"tflops": 1000.0, "way": "kernel"},
        row("quantize", 20.0) | {"tflops": "", "way": "kernel"},
    ]
    lines = fp8.summary(rows).splitlines()
    assert lines[0].startswith("Error of the kernel")
    assert lines[1].split() == ["sdpa", "fp8"]
    assert lines[2].split() == ["cat", "3", "128", "1e-3", "2e-2"]
    assert lines[4].split() == ["fp8", "quantize"]
    assert lines[5].endswith("100.0 us, 1000.0  20.0 us, -")
    assert len(lines) == 6


def test_no_verdict_without_both():
    assert fp8.verdicts([row("fp8", 100.0)]) == []


def test_outliers_are_few_and_far():
    plain, rare = (fp8.made(outliers, 64, "cpu")[0].float() for outliers in (False, True))
    assert plain.abs().max() < 6
    assert rare.abs().max() > 20
    assert (rare.abs() > 6).float().mean() < 0.001


def test_errors_against_known_ones():
    truth = torch.full((1, 1, 2, 2), 2.0, dtype=torch.float64)
    found = fp8.errors(
        truth.float() + 0.5, torch.zeros(1, 1, 2), truth, torch.ones(1, 1, 2).double()
    )
    assert found == {"error": "2.500e-01", "rmse": "5.000e-01", "lse_error": "1.0e+00"}


@pytest.mark.skipif(reason(torch.device("cuda")) is None, reason="here is a Hopper GPU")
def test_no_speed_without_a_hopper_gpu():
    with pytest.raises(BenchError, match="needs a Hopper GPU"):
        next(fp8.speed_rows(1))
