"""The side panel's figures and words, without a browser and without measuring."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app import theme
from app.controls import cost_chip, cost_recorded
from app.controls.cost_figures import (
    Known,
    duration,
    energy,
    hbm_row,
    memory_row,
    ratio,
    time_row,
)
from app.controls.cost_known import by_formula, choices, here_words, known, request, unfit, usual
from app.controls.cost_work import progress
from app.figures.bars import Bar, Group, Mark, Tag, row, share, token_scale
from app.text.cost import RATIO, ROW, TAG, WORK
from kernels import Problem, choose
from kernels.bench.reading import Reading
from kernels.fa3 import worth
from kernels.registry import load
from kernels.traffic import formula
from kernels.traffic.roofs import H200_ON_CHIP
from tests.app.played_jobs import PlayedJobs, fill

PROBLEM = Problem(1, 6, 1370, 1370, 64, "bfloat16")
SMALL = Problem(1, 6, 177, 177, 64, "float32")
FOUR = ("naive", "fa2", "eager", "torch-cpu-flash")
CPU = torch.device("cpu")
MEASURED = Tag(TAG["measured"], ("story",))


def reading(name: str, **figures) -> Reading:
    return Reading(PROBLEM, name, machine="NVIDIA H200", when="2026-11-30", **figures)


def on_gpu(name: str, **figures) -> Known:
    return Known(
        name,
        reading(name, **figures),
        stores=name == "naive",
        formula=by_formula(PROBLEM, name),
        counters=True,
    )


def words(html: str) -> list[str]:
    """What a reader of the HTML gets, piece by piece."""
    return [text.strip() for text in re.findall(r">([^<>]+)<", html) if text.strip()]


# --- bars as HTML -------------------------------------------------------------------------------------


def test_a_row_can_be_read_as_text() -> None:
    shown = (Bar("naive", 300.0, "300 B", MEASURED, stores=True), Bar("fa2", None, "not yet"))
    html = row("Bytes", [Group(shown, "caption", ("a note",))], ["why"])
    assert words(html) == [
        *("Bytes", "caption", "naive", "300 B", "measured", "story", "fa2", "not yet"),
        *("a note", "why"),
    ]


def test_every_text_is_escaped() -> None:
    evil = '<img src=x onerror=alert(1)>&"'
    shown = Bar(evil, 1.0, evil, Tag(evil, (evil,)))
    missing = Bar(evil, None, evil, missing=evil)
    html = row(evil, [Group((shown, missing), evil, (evil,), (evil,))], [evil])
    html += token_scale(Mark(5, evil), Mark(9, evil), (1, 10), evil)
    assert "<img" not in html
    assert html.count("&lt;img") == 15


def test_bars_are_linear_and_the_smallest_is_a_sliver() -> None:
    assert share(50, 200) == 25
    assert share(1, 100_000) == pytest.approx(1.0)
    assert share(0, 100) == 0
    shown = (Bar("a", 200.0, "200"), Bar("b", 50.0, "50"))
    html = row("t", [Group(shown), Group((Bar("c", 100.0, "100"),))])
    assert re.findall(r"width:([\d.]+)%", html) == ["100.00", "25.00", "50.00"]


def test_a_sentence_stands_in_the_place_of_a_bar() -> None:
    html = row("t", [Group((Bar("a", None, "none", missing="It needs 75 GB."),))])
    assert "It needs 75 GB." in html
    assert "cost-bar" not in html


def test_a_reserved_note_is_hidden_from_everybody() -> None:
    html = row("t", [Group((Bar("a"),), later=("10 times",))])
    assert '<p class="cost-later" aria-hidden="true">10 times</p>' in html
    assert ".cost-later { visibility: hidden; }" in theme.COST_CSS


def test_the_panel_has_the_colours_of_the_theme() -> None:
    text = (Path(theme.__file__).parents[1] / ".streamlit/config.toml").read_text()
    modes = tomllib.loads(text)["theme"]
    assert modes["light"]["primaryColor"] == theme.ACCENT_LIGHT
    assert modes["dark"]["primaryColor"] == theme.ACCENT_DARK
    assert modes["light"]["backgroundColor"] == theme.PAGE_LIGHT
    assert modes["dark"]["backgroundColor"] == theme.PAGE_DARK


# --- which figure, and what is said of two ------------------------------------------------------------


def bars_of(groups: list[Group]) -> list[tuple[str, str, str]]:
    return [
        (bar.label, bar.written, bar.tag.word if bar.tag else "") for g in groups for bar in g.bars
    ]


def test_before_anything_is_measured_the_formula_stands_there() -> None:
    found = [on_gpu("naive"), on_gpu("fa2")]
    groups, _ = hbm_row(found)
    assert [bar[0::2] for bar in bars_of(groups)] == [("naive", "formula"), ("fa2", "formula")]
    factor = formula(PROBLEM, "naive").total / formula(PROBLEM, "fa2").total
    words = RATIO["asked"].format(one="naive", other="fa2", factor=f"{factor:.1f}")
    assert groups[0].notes == (words,)
    for groups, _ in (time_row(found), memory_row(found)):
        assert bars_of(groups) == [(name, ROW["unmeasured"], "") for name in ("naive", "fa2")]
        assert groups[0].notes == ()


def test_counted_goes_before_formula_and_measured_before_both() -> None:
    counted = on_gpu("fa2", counted=(20, 5))
    assert bars_of(hbm_row([counted])[0]) == [("fa2", "25 bytes", "counted")]
    both = replace(
        counted, reading=replace(counted.reading, hbm_cold=(1000, 500), hbm_warm=(700, 0))
    )
    groups, _ = hbm_row([both])
    assert bars_of(groups) == [("fa2", "1.5 kB", "measured"), ("fa2", "700 bytes", "measured")]
    assert [group.caption for group in groups] == [ROW["cold"], ROW["warm"]]


def test_only_figures_of_one_kind_are_compared() -> None:
    found = [on_gpu("naive", hbm_cold=(16_500_000, 0)), on_gpu("fa2")]
    groups, _ = hbm_row(found)
    assert len(groups) == 2
    assert [group.notes for group in groups] == [(), ()]
    mixed = [on_gpu("naive", counted=(165_000, 0)), on_gpu("fa2")]
    assert [group.notes for group in hbm_row(mixed)[0]] == [()]
    found[1] = on_gpu("fa2", hbm_cold=(90_000, 10_000))
    assert hbm_row(found)[0][0].notes == ("naive moves 165 times the bytes of fa2.",)


def test_it_is_said_when_flash_does_not_win() -> None:
    found = [on_gpu("naive", time_us=8.8), on_gpu("fa2", time_us=9.3)]
    assert time_row(found)[0][0].notes == ("fa2 is no faster than naive here.",)
    found = [on_gpu("naive", time_us=23.0), on_gpu("fa2", time_us=10.0)]
    assert time_row(found)[0][0].notes == ("fa2 is 2.3 times faster than naive.",)
    found = [on_gpu("naive", peak_bytes=100), on_gpu("fa2", peak_bytes=99)]
    assert memory_row(found)[0][0].notes == ("fa2 takes no less memory than naive here.",)


def test_nothing_moved_gives_no_ratio() -> None:
    one, other = Bar("naive", 5.0, "5", MEASURED), Bar("fa2", 0.0, "0", MEASURED)
    assert ratio(one, other, "moved") == RATIO["moved_nothing"].format(other="fa2")
    assert ratio(one, other, "time") is None


def test_next_to_nothing_moved_gives_no_ratio() -> None:
    found = [on_gpu("naive", hbm_warm=(1_500_000, 0)), on_gpu("fa3", hbm_warm=(0, 256))]
    said = "fa3 moved next to nothing through HBM: all but 256 bytes stayed in L2."
    assert hbm_row(found)[0][0].notes == (said,)
    both = [on_gpu("naive", hbm_cold=(9000, 0)), on_gpu("fa3", hbm_cold=(3000, 0))]
    assert hbm_row(both)[0][0].notes == ("naive moves 3.0 times the bytes of fa3.",)


def test_two_that_store_the_matrix_are_not_compared() -> None:
    shown = [
        replace(on_gpu("naive", time_us=10.0), name="eager"),
        on_gpu("naive", time_us=5.0),
        on_gpu("fa2", time_us=1.0),
    ]
    assert time_row(shown)[0][0].notes == ("fa2 is 10 times faster than eager.",)


def test_an_average_is_called_one() -> None:
    known = on_gpu("naive", hbm_average=1.5e9, refused={"hbm": "No permission."})
    groups, notes = hbm_row([known, on_gpu("fa2", hbm_average=1.5e7)])
    assert [group.caption for group in groups] == [ROW["average"]]
    assert groups[0].notes == ("naive moves 100 times the bytes of fa2.",)
    bar = groups[0].bars[0]
    assert bar.tag is not None
    assert bar.tag.word == TAG["measured"]
    assert TAG["average_how"] in bar.tag.story
    assert notes == ["No permission."]


def test_refusals_stand_where_the_bar_would() -> None:
    refused = on_gpu("naive", refused={"time": "It ran out of memory.", "hbm": "No permission."})
    assert time_row([refused])[0][0].bars[0].missing == "It ran out of memory."
    groups, notes = hbm_row([refused])
    assert bars_of(groups)[0][2] == "formula"
    assert notes == ["No permission."]
    predicted = replace(on_gpu("naive"), predicted="naive needs 75 GB here.")
    assert memory_row([predicted])[0][0].bars[0].missing == "naive needs 75 GB here."
    assert unfit([predicted])
    assert not unfit([replace(predicted, asked=True)])
    tried = replace(predicted, reading=reading("naive", time_us=1.0))
    assert bars_of(time_row([tried])[0]) == [("naive", "1.00 µs", "measured")]
    assert not unfit([tried])


def test_a_tag_tells_how_it_was_got() -> None:
    got = reading(
        "fa2", time_us=14.0, time_low_us=13.9, time_high_us=14.2, samples=9, timed_by="graph"
    )
    one = Known("fa2", replace(got, busy=True, versions="torch 2.11"))
    tag = time_row([one])[0][0].bars[0].tag
    assert tag is not None
    assert tag.story == (
        "Median of 9 samples from 13.9 µs to 14.2 µs.",
        TAG["graph"],
        TAG["busy"],
        "6 heads, 1,370 tokens, bfloat16, forward.",
        "On NVIDIA H200.",
        "2026-11-30.",
        "torch 2.11.",
    )


def test_units_of_time_and_energy() -> None:
    assert [duration(t) for t in (0.5, 14.0, 123.4, 1234.0, 2.5e6)] == [
        *("0.50 µs", "14.0 µs", "123 µs", "1.23 ms", "2.50 s"),
    ]
    assert energy([on_gpu("fa2")]) is None
    assert "fa2 3.25 mJ" in (energy([on_gpu("fa2", energy_mj=3.25)]) or "")


def test_what_was_counted_at_a_twin_says_so() -> None:
    found = [on_gpu(name, counted=(2_000, 1_000)) for name in ("naive", "fa3")]
    stories = [bar.tag.story for group in hbm_row(found)[0] for bar in group.bars if bar.tag]
    assert [story[0] for story in stories] == [TAG["counted_how"], TAG["counted_twin"]]


# --- what it begins with ------------------------------------------------------------------------------


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU that takes fa3; nothing is launched on it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    return torch.device("cuda")


@pytest.mark.parametrize("tokens", [257, 1370, 5477, 21905])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_on_a_gpu_it_begins_with_naive_and_what_auto_takes_for_this_picture(
    hopper: torch.device, tokens: int, dtype: str
) -> None:
    pytest.importorskip("triton")
    problem = replace(PROBLEM, queries=tokens, keys=tokens, dtype=dtype)
    taken = choose(problem, hopper)
    assert usual(problem, hopper) == ("naive", taken)
    assert taken == ("fa3" if dtype == "float16" and worth(problem) else "fa2")


def test_on_a_gpu_before_hopper_it_begins_with_fa2(
    hopper: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    assert usual(replace(PROBLEM, queries=257, keys=257), hopper) == ("naive", "fa2")


def test_on_a_cpu_it_begins_with_two_pairs() -> None:
    assert usual(PROBLEM, CPU) == FOUR


# --- without a GPU ------------------------------------------------------------------------------------


def test_a_cpu_has_bytes_of_some_and_times_of_others() -> None:
    found = known(PlayedJobs(), None, SMALL, FOUR, CPU)
    assert [bar[0] for bar in bars_of(hbm_row(found)[0])] == ["naive", "fa2"]
    assert [bar[0] for bar in bars_of(time_row(found)[0])] == ["eager", "torch-cpu-flash"]
    assert [bar[0] for bar in bars_of(memory_row(found)[0])] == ["eager", "torch-cpu-flash"]
    said = here_words(found, SMALL, CPU)
    assert [sentence.partition(":")[0] for sentence in said] == [
        "naive and fa2",
        "eager and torch-cpu-flash",
    ]
    assert {*FOUR, "fa1", "fa3"} == set(choices(SMALL, CPU))


def test_what_cannot_run_here_says_why() -> None:
    found = known(PlayedJobs(), None, SMALL, ("flex", "sdpa-flash"), CPU)
    assert time_row(found)[0] == hbm_row(found)[0] == []
    assert len(here_words(found, SMALL, CPU)) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what is said without a Hopper GPU")
@pytest.mark.parametrize(
    ("dtype", "shown"), [("float32", ["naive"]), ("float16", ["naive", "fa3"])]
)
def test_what_runs_on_one_gpu_only_has_bytes_and_says_what_it_needs(dtype, shown) -> None:
    """fa3's bytes are known wherever its numbers are of 16 bits; its sentence stands below in any case."""
    problem = replace(SMALL, queries=1370, keys=1370, dtype=dtype)
    found = known(PlayedJobs(), None, problem, ("naive", "fa3"), CPU)
    assert [bar[0] for bar in bars_of(hbm_row(found)[0])] == shown
    assert time_row(found)[0] == memory_row(found)[0] == []
    said = here_words(found, problem, CPU)
    assert [sentence.partition(":")[0] for sentence in said[:1]] == ["naive"]
    assert said[1:] == [load("fa3").supports(problem, CPU)]
    assert "H100 or H200" in said[1]


def test_a_jobs_readings_come_in_while_it_runs() -> None:
    jobs = PlayedJobs()
    job = jobs.start("me", request(SMALL, FOUR, CPU))
    found = known(jobs, job, SMALL, FOUR, CPU)
    assert bars_of(time_row(found)[0])[0][1] == ROW["measuring"]
    fill(job, "eager", time_us=12_000.0, samples=9, timed_by="benchmark")
    found = known(jobs, job, SMALL, FOUR, CPU)
    assert bars_of(time_row(found)[0]) == [
        ("eager", "12.0 ms", "measured"),
        ("torch-cpu-flash", ROW["measuring"], ""),
    ]


def test_the_state_of_a_job_in_words() -> None:
    jobs = PlayedJobs()
    job = jobs.start("me", request(SMALL, FOUR, CPU))
    jobs.ahead = 1
    assert words(progress(job, SMALL)) == [WORK["one_ahead"]]
    jobs.ahead = 3
    assert words(progress(job, SMALL)) == [WORK["ahead"].format(ahead=3)]
    jobs.ahead = 0
    job.show(sentence="Timing fa2.", progress=0.25)
    assert words(progress(job, SMALL)) == ["Timing fa2."]
    assert 'value="0.250"' in progress(job, SMALL)
    assert words(progress(job, PROBLEM)) == ["At 177 tokens: Timing fa2."]
    job.finish("failed", "The worker was killed; try fewer tokens.")
    assert words(progress(job, SMALL)) == ["The worker was killed; try fewer tokens."]
    assert words(progress(job, PROBLEM)) == words(progress(None, SMALL)) == []


# --- on the chip, and recorded ------------------------------------------------------------------------


def test_where_the_matrix_leaves_l2() -> None:
    chip = cost_chip.Chip(H200_ON_CHIP, here=True)
    most = cost_chip.most_tokens(PROBLEM, H200_ON_CHIP.l2_bytes)
    assert 6 * most**2 * 2 <= 60 * 2**20 < 6 * (most + 1) ** 2 * 2
    assert "fits into the 63 MB L2 of this GPU" in cost_chip.chip_words(PROBLEM, chip)[0]
    assert f"From {most + 1:,} tokens on" in cost_chip.chip_words(PROBLEM, chip)[0]
    large = replace(PROBLEM, queries=most + 1, keys=most + 1)
    assert "more than the 63 MB L2" in cost_chip.chip_words(large, chip)[0]
    assert "recorded" in cost_chip.chip_words(PROBLEM, cost_chip.chip_of(CPU))[0]


def test_the_nearest_recorded_problem_stands_beside() -> None:
    def at(tokens: int, name: str, **changes) -> Reading:
        problem = replace(PROBLEM, queries=tokens, keys=tokens, **changes)
        return Reading(problem, name, time_us=1.0, machine="NVIDIA H200", when="2026-11-30")

    found = [at(n, name) for n in (257, 1370, 5477) for name in ("naive", "fa2")]
    found += [at(900, "fa2"), at(926, "naive", heads=12), at(926, "fa2", heads=12)]
    here = replace(PROBLEM, queries=926, keys=926, dtype="float32")
    nearest = cost_recorded.nearest(found, here, ("fa2", "naive"))
    assert [(one.problem.queries, one.implementation) for one in nearest] == [
        (1370, "fa2"),
        (1370, "naive"),
    ]
    poorer = [replace(at(1370, name, dtype="float32"), time_us=None) for name in ("naive", "fa2")]
    assert cost_recorded.nearest([*poorer, *found], here, ("fa2", "naive")) == nearest
    assert cost_recorded.nearest(found, replace(here, head_dim=128), ("fa2", "naive")) == ()
    groups, _ = time_row(cost_recorded.as_known(nearest), recorded=True)
    assert {bar[2] for bar in bars_of(groups)} == {TAG["recorded"]}


def test_the_committed_files_hold_something_to_stand_beside() -> None:
    assert len(cost_recorded.nearest(cost_recorded.readings(), SMALL, ("naive", "fa2"))) == 2
