"""Which figure stands in which bar of the side panel, and what may be said of two of them.

Pure: readings in, rows out. Only figures that were got in the same way on the same machine share a
group, and only those within a group are compared in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.figures.bars import Bar, Group, Tag
from app.memory import in_words
from app.text.cost import RATIO, ROW, TAG
from kernels.bench.reading import Bytes, Reading
from kernels.fa3.stand_in import STAND_IN
from kernels.traffic.ledger import Traffic

NO_GAIN = 1.05
"""Below this factor one is not called better than the other."""

FEW_BYTES = 10_000
"""So few in DRAM may be anyone's, such as the kernel's own code: no ratio is made of them."""


@dataclass(frozen=True)
class Known:
    """All that is known of one implementation on the problem at hand."""

    name: str
    reading: Reading  # empty where nothing was measured
    stores: bool = False  # it stores N x N
    formula: Traffic | None = None
    predicted: str | None = None  # the sentence, where it is predicted not to fit
    timed: bool = True  # this machine can time it
    counters: bool = False  # its HBM bytes can be measured here
    asked: bool = False  # its measurement is on its way


Row = tuple[list[Group], list[str]]
"""Groups of bars, and sentences that are true of the row."""


def hbm_row(all_known: Sequence[Known], recorded: bool = False) -> Row:
    """DRAM bytes where they were measured, else the bytes that the kernels ask for."""
    groups = []
    for name in ("cold", "warm"):
        bars = [measured_bytes(one, name, recorded) for one in all_known if moved(one, name)]
        groups += grouped(bars, ROW[name], "moved")
    rest = [one for one in all_known if not (moved(one, "cold") or moved(one, "warm"))]
    averages = [one for one in rest if one.reading.hbm_average is not None]
    groups += grouped([average_bytes(one) for one in averages], ROW["average"], "moved")
    rest = [one for one in rest if one not in averages]
    asked = [one for one in rest if asked_bytes(one, recorded) is not None]
    bars = [bar for one in asked if (bar := asked_bytes(one, recorded)) is not None]
    groups += grouped(bars, ROW["asked"], "asked")
    unknown = [one for one in rest if one not in asked and one.counters]
    groups += grouped([unmeasured(one, "hbm") for one in unknown], "", "moved")
    return groups, sentences([*averages, *asked], "hbm")


def time_row(all_known: Sequence[Known], recorded: bool = False) -> Row:
    bars = []
    for one in all_known:
        time_us = one.reading.time_us
        if time_us is not None:
            story = told(time_story(one.reading), one.reading)
            word = TAG["recorded" if recorded else "measured"]
            written = duration(time_us)
            bars.append(Bar(one.name, time_us, written, Tag(word, story), stores=one.stores))
        elif one.timed and not recorded:
            bars.append(unmeasured(one, "time"))
    return grouped(bars, "", "time"), []


def memory_row(all_known: Sequence[Known], recorded: bool = False) -> Row:
    bars = []
    for one in all_known:
        peak = one.reading.peak_bytes
        if peak is not None:
            how = TAG.get(one.reading.peak_by)
            story = told([how] if how else [], one.reading)
            word = TAG["recorded" if recorded else "measured"]
            bars.append(Bar(one.name, peak, in_words(peak), Tag(word, story), stores=one.stores))
        elif one.timed and not recorded:
            bars.append(unmeasured(one, "memory"))
    return grouped(bars, ROW["memory_caption"], "memory"), []


def energy(all_known: Sequence[Known]) -> str | None:
    """The energy of each that has one, in one sentence."""
    amounts = [
        ROW["energy_one"].format(name=one.name, amount=f"{one.reading.energy_mj:.3g}")
        for one in all_known
        if one.reading.energy_mj is not None
    ]
    return ROW["energy"].format(amounts=", ".join(amounts)) if amounts else None


# --- one bar ------------------------------------------------------------------------------------------


def moved(one: Known, cache: str) -> Bytes | None:
    return one.reading.hbm_cold if cache == "cold" else one.reading.hbm_warm


def measured_bytes(one: Known, cache: str, recorded: bool) -> Bar:
    pair = moved(one, cache) or (0, 0)
    story = [TAG[f"{cache}_how"], parts(*pair), *([TAG["delayed"]] if cache == "warm" else [])]
    tag = Tag(TAG["recorded" if recorded else "measured"], told(story, one.reading))
    return Bar(one.name, sum(pair), in_words(sum(pair)), tag, stores=one.stores)


def average_bytes(one: Known) -> Bar:
    """What NVML says of the whole GPU while the calls run: an average, and named so."""
    value = one.reading.hbm_average or 0.0
    tag = Tag(TAG["measured"], told([TAG["average_how"]], one.reading))
    return Bar(one.name, value, in_words(value), tag, stores=one.stores)


def asked_bytes(one: Known, recorded: bool) -> Bar | None:
    """Counted, else by formula; None where neither can be had."""
    if one.reading.counted is not None:
        pair = one.reading.counted
        word = TAG["recorded" if recorded else "counted"]
        how = TAG["counted_twin" if one.name == STAND_IN.name else "counted_how"]
        tag = Tag(word, told([how, parts(*pair)], one.reading))
    elif one.formula is not None:
        pair = one.formula.bytes_read, one.formula.bytes_written
        story = [TAG["formula_how"], parts(*pair), subject(one.reading)]
        if why := one.reading.refused.get("counted"):
            story.append(TAG["not_counted"].format(sentence=why))
        tag = Tag(TAG["formula"], tuple(story))
    else:
        return None
    return Bar(one.name, sum(pair), in_words(sum(pair)), tag, stores=one.stores)


def unmeasured(one: Known, what: str) -> Bar:
    """Why there is no figure: refused, predicted not to fit, on its way, or nobody has asked."""
    why = one.reading.refused.get(what) or (one.predicted if what != "hbm" else None)
    if why:
        return Bar(one.name, None, ROW["none"], missing=why, stores=one.stores)
    return Bar(one.name, None, ROW["measuring" if one.asked else "unmeasured"], stores=one.stores)


def parts(read: int, written: int) -> str:
    return TAG["parts"].format(read=in_words(read), written=in_words(written))


def time_story(reading: Reading) -> list[str]:
    """Spread, number and manner of the samples."""
    low, high = reading.time_low_us, reading.time_high_us
    spread = TAG["one_how"]
    if low is not None and high is not None and reading.samples > 1:
        spread = TAG["time_how"].format(
            samples=reading.samples, low=duration(low), high=duration(high)
        )
    return [spread, *([TAG[reading.timed_by]] if reading.timed_by in TAG else [])]


def told(story: Iterable[str], reading: Reading) -> tuple[str, ...]:
    """The story with what was run, where and when."""
    rest = {"on": reading.machine, "when": reading.when, "versions": reading.versions}
    named = [
        TAG[name].format(**{"machine": text, "when": text, "versions": text})
        for name, text in rest.items()
        if text
    ]
    return (*story, *([TAG["busy"]] if reading.busy else []), subject(reading), *named)


def subject(reading: Reading) -> str:
    problem = reading.problem
    return TAG["subject"].format(
        heads=problem.heads, tokens=f"{problem.queries:,}", dtype=problem.dtype
    )


def duration(time_us: float) -> str:
    """14.0 -> "14.0 µs"; three digits, so that the width hardly changes."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{digits(time_us / size)} {unit}"
    return f"{digits(time_us)} µs"


def digits(value: float) -> str:
    """Three significant digits without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# --- what may be said of two bars ---------------------------------------------------------------------


def grouped(bars: Sequence[Bar], caption: str, kind: str) -> list[Group]:
    """The group of these bars with what can be said of them, or none where there are no bars."""
    if not bars:
        return []
    said = [sentence for pair in pairs(bars) if (sentence := ratio(*pair, kind))]
    later = [
        RATIO[kind].format(one=one.label, other=other.label, factor=10)
        for one, other in pairs(bars)
        if None in (one.value, other.value) and not (one.missing or other.missing)
    ]
    return [Group(tuple(bars), caption, tuple(said), tuple(later))]


def pairs(bars: Sequence[Bar]) -> list[tuple[Bar, Bar]]:
    """The first that stores N x N, or else the first at all, with each that does not store it."""
    first = next((bar for bar in bars if bar.stores), bars[0])
    return [(first, bar) for bar in bars if bar is not first and not bar.stores]


def ratio(one: Bar, other: Bar, kind: str) -> str | None:
    """How much more `one` takes than `other`, in words; None where they must not be compared."""
    upper, lower = one.value, other.value
    if upper is None or lower is None or one.tag is None or other.tag is None:
        return None
    if one.tag.word != other.tag.word:
        return None
    if lower <= 0:
        return RATIO["moved_nothing"].format(other=other.label) if kind == "moved" else None
    if kind == "moved" and lower < FEW_BYTES <= upper:
        return RATIO["moved_hardly"].format(other=other.label, bytes=other.written)
    if upper / lower < NO_GAIN:
        return RATIO[f"{kind}_no"].format(one=one.label, other=other.label)
    return RATIO[kind].format(one=one.label, other=other.label, factor=factor(upper / lower))


def factor(value: float) -> str:
    """165.3 -> "165", 2.34 -> "2.3"."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def sentences(all_known: Sequence[Known], want: str) -> list[str]:
    """Why something could not be measured, each reason once."""
    found = [why for one in all_known if (why := one.reading.refused.get(want))]
    return list(dict.fromkeys(found))
