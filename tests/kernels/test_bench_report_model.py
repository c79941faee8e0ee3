"""The tables about whole models and FP8, of rows that are made up."""

from __future__ import annotations

import pytest

from kernels.bench.record import append
from kernels.bench.report_model import model_parts

HERE = {"machine": "GPU", "driver": "1", "torch": "2", "triton": "3", "commit": "abc",
        "date": "2026-01-01"}  # fmt: skip
SPEED = {"contestant": "ours-forward", "side": 518, "tokens": 1370, "dtype": "float16",
         "time_ms": 0.8, "time_low_ms": 0.75, "time_high_ms": 1.25} | HERE  # fmt: skip
RUN = {"model": "small", "side": 14014, "tokens": 1002002, "layers": 12, "heads": 6,
       "dtype": "float16", "implementation": "fa3"}  # fmt: skip
STAGE = RUN | {"trace": "passing", "stage": "rows", "seconds": 0.198, "peak_gb": 4.38,
               "error": "8.7e-05", "sum_off": "5.2e-05"} | HERE  # fmt: skip
SPLIT = RUN | {
    "ranks": 2, "trace_one_s": 29.8993, "trace_split_s": 17.0362, "trace_ratio": 1.757,
    "all_one_s": 49.2, "all_split_s": 0.0663, "all_ratio": 1.652, "peak_one_gb": 10.39,
    "peak_split_gb": 10.76, "float64_error": "3.6e-06", "row_difference": "5.0e-03",
    "column_difference": "7.0e-03", "received_difference": "1.1e-02",
} | HERE  # fmt: skip
FP8 = {"input": "cat.png", "layer": 3, "contestant": "fp8", "way": "kernel", "batch": 1, "heads": 6,
       "queries": 1370, "head_dim": 64, "error": "3.1e-02", "time_us": "", "time_low_us": "",
       "tflops": ""} | HERE  # fmt: skip


@pytest.fixture
def section(tmp_path):
    """(name, rows) -> the text of the section, once the rows are recorded."""

    def made(name, *rows):
        if rows:
            append(tmp_path / f"{name}.csv", rows)
        text = "\n".join(model_parts(tmp_path))
        return text.partition(f"### {name}\n")[2].partition("\n### ")[0]

    return made


@pytest.mark.parametrize("name", ["model_speed", "million", "parallel", "fp8"])
def test_a_file_that_is_missing_is_said_to_be(name, section):
    assert "Nothing is recorded yet." in section(name)


def test_a_trace_stands_beside_its_own_forward_pass(section):
    text = section(
        "model_speed",
        SPEED,
        SPEED | {"contestant": "ours-trace", "time_ms": 0.88},
        SPEED | {"contestant": "ours-forward-launched", "time_ms": 4.0},
        SPEED | {"contestant": "ours-trace-launched", "time_ms": 6.0},
        SPEED | {"side": 224, "tokens": 257, "contestant": "ours-forward", "time_ms": 0.1},
        SPEED | {"contestant": "peer"},
    )
    assert "#### model_speed on GPU\n\nRecorded: driver 1, torch 2, Triton 3, commit abc" in text
    assert "| 518 px, 1,370 tokens, float16 | 0.80 (0.75–1.25) | 0.88 (0.75–1.25) |" in text
    ratios = text.partition("over that of the forward pass")[2]
    assert "|  | ours-trace | ours-trace-launched |" in ratios
    assert "| 518 px, 1,370 tokens, float16 | 1.10 | 1.50 |" in ratios
    assert "224 px" not in ratios


def test_without_a_trace_there_is_no_ratio(section):
    assert "over that of" not in section("model_speed", SPEED)


def test_the_stages_of_each_run(section):
    bare = {"stage": "attention", "seconds": 35.419, "peak_gb": "", "error": "", "sum_off": ""}
    text = section(
        "million",
        STAGE | {"seconds": 99.0},
        STAGE,
        STAGE | bare,
        STAGE | {"trace": "kept", "seconds": 0.0041},
    )
    assert text.count("| stage | seconds | peak, GB | largest error | sums off by |") == 2
    passing, _, kept = text.partition("layers kept:")
    run = "small, 14014 px, 1,002,002 tokens, 12 layers of 6 heads, fa3 in float16, layers passing:"
    assert run in passing
    assert "| rows | 0.198 | 4.38 | 8.7e-05 | 5.2e-05 |" in passing
    assert "| attention | 35.419 | – | – | – |" in passing
    assert "99" not in text
    assert "| rows | 0.004 |" in kept


def test_each_run_on_several_gpus_has_its_row(section):
    text = section("parallel", SPLIT, SPLIT | {"layers": 5, "commit": "def", "trace_ratio": 1.88})
    assert "commit abc, def" in text
    assert "| 14014 px, 1,002,002 tokens, 12 layers, 2 GPUs | 29.899 → 17.036 | 1.76 |" in text
    assert "| 49.200 → 0.066 | 1.65 | 10.39 → 10.76 | 3.6e-06 | 5.0e-03, 7.0e-03, 1.1e-02 |" in text
    assert "5 layers, 2 GPUs | 29.899 → 17.036 | 1.88 |" in text
    assert text.count("2 GPUs") == 2


def test_a_run_on_a_cpu_has_no_peak(section):
    text = section("parallel", SPLIT | {"peak_one_gb": "", "peak_split_gb": ""})
    assert "| – → – |" in text


def test_errors_of_fp8_without_a_speed(section):
    text = section("fp8", FP8, FP8 | {"way": "reference", "error": "3.0e-02"}, FP8 | {"layer": ""})
    assert "|  | fp8, kernel | fp8, reference |" in text
    assert "| cat.png, layer 3: 1, 6, 1370, 64 | 3.1e-02 | 3.0e-02 |" in text
    assert "| cat.png: 1, 6, 1370, 64 | 3.1e-02 |  |" in text
    assert "No speed is recorded." in text


def test_speeds_of_fp8(section):
    timed = {
        "input": "normal",
        "layer": "",
        "time_us": 1500.4,
        "time_low_us": 1490.0,
        "tflops": 733.0,
    }
    text = section(
        "fp8",
        FP8 | timed,
        FP8 | timed | {"contestant": "quantize", "tflops": "", "error": ""},
    )
    assert "|  | fp8 | quantize |" in text
    assert "| 1, 6, 1370, 64 | 1,500 (1,490) | 1,500 (1,490) |" in text
    assert "| 1, 6, 1370, 64 | 733 | – |" in text
    assert "Error of the output" not in text
    assert "No speed" not in text
