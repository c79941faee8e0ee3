"""Reading the table that ncu writes: by its header, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.traffic import ncu
from kernels.traffic.ncu import CountersError
from tests.kernels import played_ncu

TABLE = played_ncu.table(["flashlens_marker", *played_ncu.WORK], list(ncu.EVERYTHING))


def test_a_table_is_read_by_its_header():
    marker, ours, torchs = ncu.launches(TABLE, ncu.EVERYTHING)
    assert marker.kernel == ncu.MARKER
    assert ours == ncu.Launch(
        "forward_kernel", 12_700_000, 1234, 160_000_000, 1_920_000, 80_000_000, 111.0, 1
    )
    assert torchs.kernel.endswith("(int, T2, T3)")


def test_older_versions_spell_nanoseconds_out():
    assert ncu.launches(TABLE.replace('"ns"', '"nsecond"'), ncu.EVERYTHING)


@pytest.mark.parametrize(
    ("break_it", "cause"),
    [
        (lambda text: text.replace('"12,700,000"', '"n/a"'), "unreadable"),
        (lambda text: text.replace('"12,700,000"', '"-5"'), "unreadable"),
        (lambda text: text.replace('"12,700,000"', '"nan"'), "unreadable"),
        (lambda text: text.replace('"ns"', '"us"'), "unreadable"),
        (lambda text: text.replace('"sector"', '"byte"'), "unreadable"),
        (lambda text: text.replace("dram__bytes_read.sum", "dram__other.sum"), "unsuited"),
        (lambda text: text[:-30], "unreadable"),
        (lambda text: "\n".join(text.splitlines()[:3]), "unreadable"),
        (lambda text: "\n".join(text.splitlines()[:4]), "failed"),
        (lambda text: "", "unreadable"),
    ],
)
def test_a_surprise_in_the_table_is_refused(break_it, cause):
    broken = break_it(TABLE)
    assert broken != TABLE
    with pytest.raises(CountersError) as caught:
        ncu.launches(broken, ncu.EVERYTHING)
    assert caught.value.cause == cause


def test_kernels_before_the_first_marker_are_refused():
    found = ncu.launches(TABLE, ncu.EVERYTHING)
    with pytest.raises(CountersError, match="before the first marker"):
        ncu.split(found[1:])


def test_passes():
    found = ncu.launches(TABLE, ncu.EVERYTHING)
    assert ncu.passes(found) == 1
    assert ncu.passes([*found, replace(found[0], passes=3)]) == 3
    assert ncu.passes([replace(one, passes=None) for one in found]) is None
