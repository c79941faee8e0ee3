"""The side panel's drawings as HTML: bars with their tags, and how far N x N reaches.

Every text is escaped here. The rules of style that go with the classes are in app/theme.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

SLIVER_PERCENT = 1.0
"""The narrowest that a bar is drawn, so that the smallest figure can still be seen."""


@dataclass(frozen=True)
class Tag:
    """How a figure was got: one word, and behind it the whole story."""

    word: str
    story: tuple[str, ...]  # one line each


@dataclass(frozen=True)
class Bar:
    """One figure. Without a value its sentence stands in the bar's place."""

    label: str
    value: float | None = None
    written: str = ""  # the value with its unit, or in short that there is none
    tag: Tag | None = None
    missing: str = ""
    stores: bool = False  # it stores N x N; such bars have a colour of their own


@dataclass(frozen=True)
class Group:
    """Bars that may be compared with each other, under one caption, and what is to be said of them."""

    bars: tuple[Bar, ...]
    caption: str = ""
    notes: tuple[str, ...] = ()
    later: tuple[str, ...] = ()  # not to be seen: they keep the place of notes that will come


def row(title: str, groups: Sequence[Group], notes: Iterable[str] = (), small: bool = False) -> str:
    """One row of the panel: all its bars on one linear scale from 0, and sentences under them."""
    values = [bar.value for group in groups for bar in group.bars if bar.value is not None]
    top = max(values, default=0.0)
    heading = "h4" if small else "h3"
    parts = [f"<{heading}>{escape(title)}</{heading}>"]
    for group in groups:
        if group.caption:
            parts.append(f'<p class="cost-quiet">{escape(group.caption)}</p>')
        parts.append(f"<ul>{''.join(bar_item(bar, top) for bar in group.bars)}</ul>")
        parts += [f"<p>{escape(note)}</p>" for note in group.notes]
        parts += [f'<p class="cost-later" aria-hidden="true">{escape(n)}</p>' for n in group.later]
    parts += [f"<p>{escape(note)}</p>" for note in notes]
    return f'<section class="cost-row{" cost-small" if small else ""}">{"".join(parts)}</section>'


def bar_item(bar: Bar, top: float) -> str:
    """Name, value and tag in one line, the bar or the sentence in its place below."""
    head = f'<span class="cost-name">{escape(bar.label)}</span> '
    head += f'<span class="cost-value">{escape(bar.written)}</span>{tag(bar.tag)}'
    if bar.missing:
        return f'<li>{head}<p class="cost-missing">{escape(bar.missing)}</p></li>'
    width = 0.0 if bar.value is None else share(bar.value, top)
    kind = "cost-stores" if bar.stores else "cost-spares"
    fill = f'<span class="{kind}" style="width:{width:.2f}%"></span>'
    return f'<li>{head}<span class="cost-bar" aria-hidden="true">{fill}</span></li>'


def share(value: float, top: float) -> float:
    """A bar's width in percent: linear, but never too narrow to be seen."""
    if value <= 0 or top <= 0:
        return 0.0
    return max(100 * value / top, SLIVER_PERCENT)


def tag(shown: Tag | None) -> str:
    """The word, which opens its story."""
    if shown is None:
        return ""
    story = "".join(f"<span>{escape(line)}</span>" for line in shown.story)
    return (
        f' <details class="cost-tag" name="cost-tag"><summary>{escape(shown.word)}</summary>'
        f'<div class="cost-story">{story}</div></details>'
    )


@dataclass(frozen=True)
class Mark:
    """A place on the scale of tokens."""

    tokens: float
    label: str


def token_scale(here: Mark, limit: Mark, ends: tuple[int, int], spoken: str) -> str:
    """A thin logarithmic line of tokens: up to `limit` N x N fits into L2, and N is `here`."""
    place, edge = (log_place(mark.tokens, ends) for mark in (here, limit))
    return (
        f'<div class="cost-scale" role="img" aria-label="{escape(spoken)}">'
        f'<span class="cost-fits" style="width:{edge:.2f}%"></span>'
        f'<span class="cost-here" style="left:{place:.2f}%"></span>'
        f"{label_at(here, place, 'cost-above')}{label_at(limit, edge, 'cost-below')}</div>"
    )


def label_at(mark: Mark, place: float, kind: str) -> str:
    """A mark's words, kept inside the line's ends."""
    return (
        f'<span class="{kind}" style="left:{place:.2f}%;transform:translateX(-{place:.2f}%)">'
        f"{escape(mark.label)}</span>"
    )


def log_place(tokens: float, ends: tuple[int, int]) -> float:
    """A place in percent, inside the line whatever the number."""
    low, high = (math.log(end) for end in ends)
    place = (math.log(max(tokens, 1.0)) - low) / (high - low)
    return 100 * min(max(place, 0.0), 1.0)
