"""What is to be measured, as data that the app and its worker hand to each other in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from kernels.bench.reading import Reading
from kernels.problem import Problem

Want = Literal["time", "memory", "counted", "hbm", "energy"]
WANTS: tuple[Want, ...] = ("time", "memory", "counted", "hbm", "energy")
"""In the order in which they are measured, each for all entries: what a visitor looks at first comes first."""

Entry = tuple[Problem, str, str]
"""Problem, implementation, direction."""

FILLS: Mapping[str, tuple[str, ...]] = {
    "time": ("time_us", "time_low_us", "time_high_us", "samples", "timed_by"),
    "memory": ("peak_bytes", "peak_by"),
    "counted": ("counted",),
    "hbm": ("hbm_cold", "hbm_warm", "hbm_average", "l2"),
    "energy": ("energy_mj",),
}
"""Want -> the fields of a reading that answer it."""

ROUNDS = 9


@dataclass(frozen=True)
class Asked:
    """The entries, as readings that may hold answers already, and what is wanted of each."""

    readings: tuple[Reading, ...]
    wants: tuple[Want, ...]
    rounds: int = ROUNDS  # samples of each time; the slow get fewer
    try_anyway: bool = False  # also what is predicted not to fit, or to take long
    roofs: bool = False  # this machine's own bandwidth and arithmetic too

    def to_json(self) -> dict[str, Any]:
        return {
            "readings": [one.to_json() for one in self.readings],
            "wants": self.wants,
            "rounds": self.rounds,
            "try_anyway": self.try_anyway,
            "roofs": self.roofs,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Entries [problem, implementation, direction] will do as well as readings.

        Raises:
            KeyError, TypeError, ValueError: it is no such request.
        """
        if "readings" in values:
            readings = tuple(Reading.from_json(one) for one in values["readings"])
        else:
            readings = tuple(
                Reading(Problem(**problem), name, direction)
                for problem, name, direction in values["entries"]
            )
        return cls(
            readings,
            in_order(values["wants"]),
            int(values.get("rounds", ROUNDS)),
            bool(values.get("try_anyway", False)),
            bool(values.get("roofs", False)),
        )


def in_order(wants: Sequence[str]) -> tuple[Want, ...]:
    """
    Raises:
        ValueError: one of them is not known.
    """
    unknown = [one for one in wants if one not in WANTS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} cannot be measured; choose from {', '.join(WANTS)}.")
    return tuple(one for one in WANTS if one in wants)


def answered(reading: Reading, want: str) -> bool:
    """Measured, or refused with a reason."""
    return want in reading.refused or has(reading, want)


def has(reading: Reading, want: str) -> bool:
    """Is there a figure?"""
    return any(getattr(reading, name) is not None for name in FILLS[want] if has_no_default(name))


def has_no_default(name: str) -> bool:
    """Fields that are None until they are measured."""
    return getattr(Reading, name, None) is None


def refuse(reading: Reading, wants: Sequence[str], sentence: str) -> Reading:
    """The same, with this sentence for each of these that has no answer yet."""
    reasons = {want: sentence for want in wants if not answered(reading, want)}
    return replace(reading, refused={**reading.refused, **reasons})


def merged(new: Reading, old: Reading | None) -> Reading:
    """The new reading, and from the old one what the new one was not asked."""
    if old is None:
        return new
    for want in WANTS:
        if not answered(new, want) and has(old, want):
            new = replace(new, **{name: getattr(old, name) for name in FILLS[want]})
    return new
