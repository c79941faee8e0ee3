"""The committed results as readings: whole, the newest of each, and nothing from a broken file."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from kernels.bench.record import RESULTS
from kernels.bench.recorded import (
    ROOFS,
    TIMES,
    TRAFFIC,
    read,
    recorded,
    recorded_roofs,
    versions_together,
)
from kernels.problem import Problem
from kernels.registry import IMPLEMENTATIONS

TIME_COLUMNS = (RESULTS / "speed_vs_tokens.csv").read_text().splitlines()[0]
TIME_LINE = (
    "picture_sizes,{name},forward,1,6,6,{tokens},{tokens},64,bfloat16,False,{time},{low},{high},9,graph,1.0,"
    "{peak},{failed},{machine},580.1,2.11.0,3.6.0,5.17.0,3.12.3,abc1234,{date}"
)
TRAFFIC_COLUMNS = (
    "implementation,direction,batch,heads,kv_heads,queries,keys,head_dim,dtype,causal,source,cache,"
    "bytes_read,bytes_written,l2_read,l2_written,time_us,calibration_read,calibration_written,failed,"
    "machine,driver,ncu,torch,triton,commit,date"
)
TRAFFIC_LINE = (
    "{name},forward,1,6,6,{tokens},{tokens},64,bfloat16,False,{source},{cache},{read},{written},{l2},{l2},,,,"
    "{failed},NVIDIA H200,580.1,2025.3,2.11.0,3.6.0,def5678,2026-11-30"
)


def time_line(name: str = "fa2", tokens: int = 257, **values: str) -> str:
    rest = {"time": "5.5", "low": "5.0", "high": "6.0", "peak": "0.25", "failed": ""}
    rest |= {"machine": "NVIDIA H200", "date": "2026-11-29"}
    return TIME_LINE.format(name=name, tokens=tokens, **(rest | values))


def traffic_line(source: str, cache: str = "", tokens: int = 257, **values: str) -> str:
    rest = {"name": "fa2", "read": "1000", "written": "200", "l2": "", "failed": ""} | values
    return TRAFFIC_LINE.format(source=source, cache=cache, tokens=tokens, **rest)


def write(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", [*TIMES, TRAFFIC])
def test_the_committed_files_parse_whole(name: str) -> None:
    path = RESULTS / name
    if not path.exists():
        pytest.skip(f"{name} is not recorded yet")
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    about_us = [
        line
        for line in lines
        if line.get("contestant", line.get("implementation")) in IMPLEMENTATIONS
        and not line["machine"].startswith("CPU")
        and line.get("source") != "formula"
    ]
    assert about_us
    assert len(read(iter(lines))) == len(about_us)


def test_what_is_committed_can_be_shown() -> None:
    found = recorded()
    assert {"naive", "fa2"} <= {reading.implementation for reading in found}
    for reading in found:
        assert reading.machine
        assert reading.when
        assert "commit" in reading.versions
        bytes_moved = reading.counted or reading.hbm_cold or reading.hbm_warm
        assert reading.time_us or reading.peak_bytes or bytes_moved or reading.refused


def test_a_line_becomes_a_reading(tmp_path: Path) -> None:
    write(tmp_path, "picture_sizes.csv", TIME_COLUMNS, time_line())
    (reading,) = recorded(tmp_path)
    assert reading.problem == Problem(1, 6, 257, 257, 64, "bfloat16")
    assert (reading.time_us, reading.time_low_us, reading.time_high_us) == (5.5, 5.0, 6.0)
    assert (reading.samples, reading.timed_by) == (9, "graph")
    assert (reading.peak_bytes, reading.peak_by) == (250_000, "allocator")
    assert (reading.machine, reading.when) == ("NVIDIA H200", "2026-11-29")
    assert reading.versions == "driver 580.1, torch 2.11.0, triton 3.6.0, commit abc1234"


def test_the_newest_line_holds_and_a_cpu_is_left_out(tmp_path: Path) -> None:
    cpu = time_line(machine='"CPU, some, 2 threads"')
    write(tmp_path, "picture_sizes.csv", TIME_COLUMNS, time_line(), time_line(time="4.4"), cpu)
    (reading,) = recorded(tmp_path)
    assert reading.time_us == 4.4


def test_a_failure_keeps_its_sentence(tmp_path: Path) -> None:
    lost = time_line(time="", low="", high="", peak="", failed="out of memory")
    write(tmp_path, "picture_sizes.csv", TIME_COLUMNS, lost)
    (reading,) = recorded(tmp_path)
    assert (reading.time_us, reading.peak_bytes) == (None, None)
    assert reading.refused == {"time": "out of memory"}


def test_versions_of_several_runs_are_one_text() -> None:
    some = ["driver 5, torch 2.11, commit a", "driver 5, torch 2.13, commit b"]
    together = versions_together(some)
    assert together == "driver 5, torch 2.11 and 2.13, commit a and b"
    assert versions_together([together, some[0], ""]) == together
    assert versions_together([]) == ""


def test_picture_sizes_come_before_older_files(tmp_path: Path) -> None:
    write(tmp_path, "speed_vs_tokens.csv", TIME_COLUMNS, time_line(tokens=1370))
    assert [r.problem.queries for r in recorded(tmp_path)] == [1370]
    write(tmp_path, "picture_sizes.csv", TIME_COLUMNS, time_line(tokens=257))
    assert [r.problem.queries for r in recorded(tmp_path)] == [257]


def test_traffic_joins_the_time_of_its_problem(tmp_path: Path) -> None:
    write(tmp_path, "picture_sizes.csv", TIME_COLUMNS, time_line())
    write(
        tmp_path,
        TRAFFIC,
        TRAFFIC_COLUMNS,
        traffic_line("formula", read="7", written="7"),
        traffic_line("counted", read="900", written="100"),
        traffic_line("measured", "cold", l2="910"),
        traffic_line("measured", "warm", read="300", written="0"),
        traffic_line("measured", "cold", tokens=5477, failed="ncu was killed"),
    )
    small, large = recorded(tmp_path)
    assert small.time_us == 5.5
    assert (small.counted, small.hbm_cold, small.hbm_warm) == ((900, 100), (1000, 200), (300, 0))
    assert small.l2 == (910, 910)
    assert small.when == "2026-11-29; 2026-11-30"
    assert small.versions == "driver 580.1, torch 2.11.0, triton 3.6.0, commit abc1234 and def5678"
    assert (large.hbm_cold, large.refused) == (None, {"hbm": "ncu was killed"})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"recipe,contestant\n",
        f"{TIME_COLUMNS}\n{time_line()}\n{time_line(time='fast')}\n".encode(),
        f"{TIME_COLUMNS}\n{time_line(time='nan')}\n".encode(),
        f"{TIME_COLUMNS}\n{time_line()}\n{time_line()[:60]}".encode(),
        f"{TIME_COLUMNS}\n{time_line()},more\n".encode(),
        f"{TIME_COLUMNS}\n".replace("peak_mb", "peak").encode() + time_line().encode(),
    ],
    ids=["empty", "bytes", "short", "word", "nan", "cut", "long", "renamed"],
)
def test_a_broken_file_gives_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "picture_sizes.csv").write_bytes(content)
    assert recorded(tmp_path) == []


def test_missing_files_give_nothing(tmp_path: Path) -> None:
    assert recorded(tmp_path) == []
    assert recorded(tmp_path / "nowhere") == []


def test_the_reader_reads_what_is_committed_elsewhere(tmp_path: Path) -> None:
    """The older file stands in until the new one is recorded."""
    shutil.copy(RESULTS / "speed_vs_tokens.csv", tmp_path)
    assert len(recorded(tmp_path)) > 50


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["4.1e12,7e14,bfloat16,NVIDIA H200,2026-11-30"], (4.1e12, 7e14)),
        (["1,1,bfloat16,NVIDIA H200,x", "2,3,bfloat16,NVIDIA H200,y"], (2, 3)),
        (["4.1e12,7e14,bfloat16,another,2026-11-30"], None),
        (["4.1e12,,bfloat16,NVIDIA H200,2026-11-30"], None),
        (["4.1e12"], None),
        ([], None),
    ],
)
def test_roofs_are_the_newest_of_their_machine(
    tmp_path: Path, lines: list[str], expected: tuple[float, float] | None
) -> None:
    write(tmp_path, ROOFS, "bytes_per_s,flops_per_s,dtype,machine,when", *lines)
    found = recorded_roofs("NVIDIA H200", tmp_path)
    assert (found and (found.bytes_per_s, found.flops_per_s)) == expected


def test_no_file_no_roofs(tmp_path: Path) -> None:
    assert recorded_roofs("NVIDIA H200", tmp_path) is None
