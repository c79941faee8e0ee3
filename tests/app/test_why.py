"""The article: its numbers, the words of its formula, and the page without a browser."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from app.components.merge_formula import door
from app.controls import turns_figure
from app.controls import why_figures as figures
from app.controls.cost_chip import Chip, chip_of
from app.figures.memories import Memory, memories
from app.figures.turns import Block, Lane, Scene, turns
from app.text import why as words
from app.views import why
from kernels import Problem
from kernels.traffic import formula
from kernels.traffic.roofs import H200_ON_CHIP, OnChip

H200 = Chip(H200_ON_CHIP, here=False)
HEADS = Problem(1, 6, 1370, 1370, 64, "float16")
SCRIPTS = {name: (door.FOLDER / name).read_text("utf-8") for name in door.MODULES}


# --- its numbers ------------------------------------------------------------------------------------


def test_sizes_of_the_recorded_gpu_say_that_they_are_recorded():
    sram, l2, hbm = figures.memory_levels(H200, None)
    assert (sram.size, sram.tag) == (
        "233 kB in each of 132 multiprocessors, 31 MB in all",
        words.MEMORY["recorded"],
    )
    assert (l2.size, l2.tag) == ("63 MB, shared by all", words.MEMORY["recorded"])
    assert (hbm.size, hbm.tag) == ("141 GB", words.MEMORY["data_sheet"])


def test_sizes_of_a_gpu_that_is_here_are_its_own():
    chip = Chip(OnChip(sram_bytes_per_sm=100_000, sms=10, l2_bytes=4_000_000), here=True)
    levels = figures.memory_levels(chip, 8 * 10**9)
    assert [level.tag for level in levels] == [words.MEMORY["here"]] * 3
    assert levels[0].size.startswith("100 kB in each of 10 multiprocessors, 1.0 MB")
    assert levels[2].size == "8.0 GB"


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what is said without a GPU")
def test_without_a_gpu_there_is_no_hbm_to_tell_of():
    device = torch.device("cpu")
    assert figures.hbm_bytes(device) is None
    assert not chip_of(device).here


def test_the_rates_are_those_of_the_record():
    told = figures.rates()
    assert told is not None
    assert "4.3 TB/s through HBM (recorded)" in told
    assert f"{132 * 128 * 1.356e9 / 1e12:.0f} TB/s (formula" in told


def test_without_a_record_no_rate_is_told(monkeypatch):
    monkeypatch.setattr(figures, "recorded_roofs", lambda machine: None)
    assert figures.rates() is None


@pytest.mark.parametrize(("tokens", "key"), [(1370, "too_large"), (257, "would_fit")])
def test_whether_the_scores_fit_is_said_for_this_picture(tokens, key):
    told = figures.yours(Problem(1, 6, tokens, tokens, 64, "float16"), H200)
    assert words.MEMORY[key] in told
    other = "would_fit" if key == "too_large" else "too_large"
    assert words.MEMORY[other] not in told


def test_bytes_of_one_head():
    told = figures.yours(HEADS, H200)
    assert "take 526 kB" in told  # 3 * 1370 * 64 * 2
    assert "scores 3.8 MB" in told  # 1370 * 1370 * 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_limit_of_the_exponential(dtype):
    limit = float(figures.overflow(dtype))
    with np.errstate(over="ignore"):
        assert np.isfinite(np.exp(dtype(limit - 0.1)))
        assert np.isinf(np.exp(dtype(limit + 0.1)))


def test_the_table_is_the_formula_for_one_head():
    lines = figures.head_bytes(HEADS)
    one = Problem(1, 1, 1370, 1370, 64, "float16")
    assert [line[words.LOOPS["kernel"]] for line in lines] == [
        words.LOOPS[name] for name in ("naive", "fa1", "fa2")
    ]
    assert lines[2][words.LOOPS["read"]] == f"{formula(one, 'fa2').bytes_read / 1e6:.1f} MB"


def test_the_law_is_told_with_the_tokens_from_which_it_holds():
    told = figures.law(HEADS, H200)
    numbers = 233_472 // 2
    assert f"M = {numbers:,} numbers" in told
    assert f"d²/M is {64 * 64 / numbers:.2g}" in told
    assert f"{math.ceil(numbers / 64):,} tokens" in told


def test_exponentials_are_told_for_this_head():
    """254 operations of the matrix units for each exponential, and 4 for each number of a head's width."""
    told = figures.exponentials(HEADS)
    assert "every 256 (4 × 64)" in told
    assert "add 99 %" in told
    assert "add 50 %" in figures.exponentials(Problem(1, 6, 9, 9, 128))


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (Problem(1, 6, 1370, 1370, 64), "48 tiles of 192 queries. On the recorded H200 with 132 "),
        (Problem(1, 6, 1370, 1370, 64), "that is one wave, 36 % full"),
        (Problem(1, 6, 5477, 5477, 64), "that is 2 waves, the last one 32 % full"),
        (Problem(1, 132, 192, 192, 64), "that is one wave, 100 % full"),
    ],
)
def test_how_full_the_last_wave_is(problem, told):
    assert told in figures.waves(problem, H200)


def test_turns_stand_side_by_side():
    """As much work done twice as fast in the drawing, which says that it is one."""
    slow, fast = turns_figure.together(), turns_figure.in_turns()
    assert {lane.slots for one in (slow, fast) for lane in one.lanes} == {8}
    done = [sum(block.kind == "multiply" for block in one.lanes[0].blocks) for one in (slow, fast)]
    assert done == [2, 4]
    html = turns_figure.taking_turns()
    assert "A drawing, not measured." in html
    second_halves = 3 * 2 + 3 * 4  # blocks of the lanes of both scenes, which a phone does not show
    assert html.count(' later"') == second_halves
    busy = [block.kind for block in fast.lanes[2].blocks]
    assert busy == ["multiply"] * 8
    for at in range(8):  # never two groups at the same work
        first, second = (fast.lanes[n].blocks[at].kind for n in (0, 1))
        assert first != second


def test_turns_escapes_and_refuses_lanes_that_cannot_stand_side_by_side():
    short, long = Lane("a<b", [Block("multiply", "x")]), Lane("c", [Block("softmax", "y", 2)])
    assert "a&lt;b" in turns([Scene("one", [short])], "drawn")
    with pytest.raises(ValueError, match="not equally long"):
        turns([Scene("both", [short, long])], "drawn")


def test_memories_escapes_and_widens():
    html = memories([Memory("a<b", "1 kB", "here", "x"), Memory("c", "2 kB", "here", "y")])
    assert "a&lt;b" in html
    first, last = (int(wide) for wide in re.findall(r"--wide:(\d+)%", html))
    assert first < last == 100


# --- the formula's scripts --------------------------------------------------------------------------


def test_every_script_is_part_of_the_component():
    assert set(SCRIPTS) == {path.name for path in door.FOLDER.glob("*.js")}


def test_top_level_names_differ_between_scripts():
    names: list[str] = []
    for text in SCRIPTS.values():
        names += re.findall(r"^(?:export )?(?:const|function|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)) > 10


def test_an_import_comes_from_a_script_before():
    seen: set[str] = set()
    for name, text in SCRIPTS.items():
        assert set(re.findall(r'from "\./([\w.]+)"', text)) <= seen
        seen.add(name)


def test_the_scripts_make_one():
    text = door.modules()
    assert "import " not in re.sub(r"//.*", "", text)
    assert len(re.findall(r"^export ", text, re.MULTILINE)) == 1


def test_every_word_of_the_formula_is_used_and_given():
    asked = set(re.findall(r"words\.(\w+)", "".join(SCRIPTS.values())))
    asked |= {"all", "merged", "wrong", "right", "wrong_by", "wrong_not"}  # asked for by a variable
    assert asked == set(words.MERGE)


def test_scores_to_start_from_lie_on_the_sliders():
    assert set(why.SCORES) == set(words.PRESETS)
    low, high, step = (door.RANGE[name] for name in ("min", "max", "step"))
    for blocks in why.SCORES.values():
        for value in (score for block in blocks for score in block):
            assert low <= value <= high
            assert (value - low) / step == int((value - low) / step)


# --- the page ---------------------------------------------------------------------------------------


def only_the_page() -> None:
    """What AppTest runs: the view, without the frame and its panel."""
    from app.guard import guarded
    from app.views import why

    guarded(why.page)()


PARTS = (
    words.MEMORY,
    words.SAFE,
    words.MERGE_TEXT,
    words.LOOPS,
    words.AT_ONCE,
    words.LAST_WAVE,
    words.NOT,
)


def test_the_page_has_seven_parts_and_a_question_for_each():
    page = AppTest.from_function(only_the_page, default_timeout=60).run()
    assert not page.exception
    assert not page.error
    assert [title.value for title in page.subheader] == [part["title"] for part in PARTS]
    assert [part["title"][:3] for part in PARTS] == [f"{n}. " for n in range(1, 8)]
    asked = [
        text.value for text in page.markdown if text.value.startswith(f"**{words.PAGE['try']}")
    ]
    assert len(asked) == 7
    assert "926 tokens" in "".join(text.value for text in page.markdown)  # the cat's, at 518 px


def test_no_line_break_is_spelled_out():
    texts = [str(value) for table in (words.PAGE, *PARTS) for value in table.values()]
    assert not [text for text in texts if re.search(r"\\n(?![a-z])", text)]


def test_every_paper_that_is_named_stands_at_the_foot():
    texts = [str(part) for part in PARTS]
    named = set(re.findall(r"\[(\d)[,\]]", "".join(texts)))
    assert named == {str(n + 1) for n in range(len(words.SOURCES))}
    foot = [text for text, _ in words.SOURCES]
    assert all(text.startswith(f"[{n}] ") for n, text in enumerate(foot, 1))
