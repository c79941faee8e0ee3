"""The memories of a GPU as HTML: the nearest and smallest on top, each wider than the one above it.

Every text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

STYLE = """
<style>
  ol.memories.memories { display: grid; gap: 6px; margin: 0; padding: 0; list-style: none; line-height: 1.4; }
  ol.memories.memories > li {
    display: grid;
    grid-template-columns: minmax(0, 13rem) minmax(0, 1fr);
    gap: 2px 1.25rem;
    width: var(--wide);
    margin: 0;
    padding: 0.55rem 0.8rem;
    border: 1px solid var(--edge);
    border-left: 4px solid var(--accent);
    border-radius: 0.25rem;
    font-size: 0.875rem;
  }
  .memories strong { display: block; font-weight: 600; }
  .memories .tag { color: var(--quiet); font-size: 0.8125rem; }
  @media (max-width: 640px) {
    ol.memories.memories > li { grid-template-columns: minmax(0, 1fr); width: 100%; }
  }
</style>
"""
"""Rules for `memories`, on the page's own colours."""

NARROWEST_PERCENT = 68


@dataclass(frozen=True)
class Memory:
    """One memory; `tag` says how its size is known."""

    name: str
    size: str
    tag: str
    holds: str


def memories(shown: Iterable[Memory]) -> str:
    """The list, from near to far."""
    levels = list(shown)
    step = (100 - NARROWEST_PERCENT) / max(len(levels) - 1, 1)
    items = [item(one, NARROWEST_PERCENT + i * step) for i, one in enumerate(levels)]
    return f'{STYLE}<ol class="memories">{"".join(items)}</ol>'


def item(memory: Memory, wide_percent: float) -> str:
    name, size, tag, holds = map(escape, (memory.name, memory.size, memory.tag, memory.holds))
    return (
        f'<li style="--wide:{wide_percent:.0f}%"><div><strong>{name}</strong>{size} '
        f'<div class="tag">{tag}</div></div><div>{holds}</div></li>'
    )
