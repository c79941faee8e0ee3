"""docs/performance.md: its tables are what the command makes of the recorded files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kernels.bench import record, report, report_model
from kernels.bench.record import RESULTS, BenchError, append

PAGE = f"# Title\n{report.BEGIN}\nold\n{report.END}\nafter\n"
KERNEL = {
    "recipe": "speed_vs_tokens", "contestant": "fa2", "direction": "forward", "batch": 1, "heads": 6,
    "kv_heads": 6, "queries": 197, "keys": 197, "head_dim": 64, "dtype": "bfloat16",
    "causal": False, "time_us": 4.637, "time_low_us": 4.6, "time_high_us": 121.3, "samples": 9,
    "timed_by": "graph", "tflops": 25.7, "peak_mb": 0.31, "failed": "", "machine": "GPU",
    "driver": "1", "torch": "2", "triton": "3", "commit": "abc", "date": "2026-01-01",
}  # fmt: skip


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_the_driver_is_one_whatever_the_number_of_gpus(gpus, monkeypatch):
    monkeypatch.setattr(record, "output_of", lambda *command: "\n".join(["580.1"] * gpus))
    assert record.driver() == ("580.1" if gpus else "")


def test_no_recorded_cell_holds_two_lines():
    for path in RESULTS.glob("*.csv"):
        for row in csv.DictReader(path.open(newline="")):
            assert not any("\n" in cell for cell in row.values()), path


def test_the_page_is_up_to_date():
    text = report.PAGE.read_text()
    assert report.filled(text, RESULTS) == text, "make bench RECIPE=report"


def test_every_recorded_file_is_read():
    text = report.PAGE.read_text()
    for path in RESULTS.glob("*.csv"):
        if path.stem in ("tune", "counters"):
            continue  # of the command `tune`, and of a profiler: the page speaks of them itself
        for row in csv.DictReader(path.open(newline="")):
            assert f"#### {path.stem} on {row['machine']}" in text


def test_the_tables(tmp_path):
    events = {"contestant": "peer", "timed_by": "events", "time_us": 12345.6}
    missing = {"contestant": "eager", "time_us": "", "tflops": "", "failed": "out of memory"}
    rows = [
        KERNEL | {"time_us": 99.0, "commit": "old"},
        KERNEL,
        KERNEL | events,
        KERNEL | missing,
        KERNEL | {"heads": 8, "kv_heads": 2, "queries": 5, "causal": True},
        KERNEL | {"machine": "Other GPU"},
    ]
    append(tmp_path / "speed_vs_tokens.csv", rows)
    text = report.filled(PAGE, tmp_path)
    assert text.startswith("# Title\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    part = text.partition("#### speed_vs_tokens on GPU\n")[2].partition("####")[0]
    assert "Recorded: driver 1, torch 2, Triton 3, commit abc, 2026-01-01." in part
    assert "|  | fa2 | peer | eager |" in part
    assert "| 1, 6, 197, 64, bfloat16 | 4.64 (4.60–121) | 12,346 (4.60–121)\\* | – |" in part
    assert "| 1, 6, 197, 64, bfloat16 | 25.7 | 25.7 | – |" in part
    assert "| 1, 8/2, 5×197, 64, bfloat16, causal | 4.64 (4.60–121) |  |  |" in part
    assert "- eager at 1, 6, 197, 64, bfloat16: out of memory" in part
    assert "could not be captured" in part
    assert "#### speed_vs_tokens on Other GPU" in text
    assert report.filled(text, tmp_path) == text


def test_peaks(tmp_path):
    both = {"recipe": "memory_vs_tokens", "direction": "forward+backward", "peak_mb": 138_412.0}
    append(tmp_path / "memory_vs_tokens.csv", [KERNEL, KERNEL | both])
    text = report.filled(PAGE, tmp_path)
    assert "|  | fa2 | fa2 forward+backward |" in text
    assert "| 1, 6, 197, 64, bfloat16 | 0.31 | 138,412 |" in text


@pytest.mark.parametrize("page", ["", report.BEGIN, f"{report.END} {report.BEGIN}", PAGE + PAGE])
def test_a_page_without_its_marks_is_refused(page, tmp_path):
    with pytest.raises(BenchError, match="must hold"):
        report.filled(page, tmp_path)


def test_writing(tmp_path):
    page: Path = tmp_path / "page.md"
    page.write_text(PAGE)
    report.write(page, tmp_path)
    sections = len(report.RECIPES) + len(report_model.SECTIONS)
    assert page.read_text().count("Nothing is recorded yet.") == sections
