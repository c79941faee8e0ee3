"""Who works when inside one program, as HTML: lanes of time with what fills them. A drawing, of no measurement.

Every text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

STYLE = """
<style>
  figure.turns.turns { margin: 0.25rem 0 0; font-size: 0.8125rem; line-height: 1.35; }
  .turns h4 { margin: 0.75rem 0 0.3rem; padding: 0; font-size: 0.875rem; font-weight: 600; }
  .turns ul, .turns ol { margin: 0; padding: 0; list-style: none; }
  .turns li { font-size: 0.8125rem; line-height: 1.35; }
  .turns ul > li {
    display: grid;
    grid-template-columns: 9.5rem minmax(0, 1fr);
    gap: 0 0.75rem;
    align-items: center;
    margin: 0 0 4px;
  }
  .turns ol { display: flex; gap: 2px; }
  .turns ol > li {
    flex: var(--slots) 1 0;
    min-width: 0;
    margin: 0;
    padding: 0.25rem 0.15rem;
    border: 1px solid var(--edge);
    border-radius: 0.2rem;
    overflow: hidden;
    text-align: center;
    white-space: nowrap;
  }
  .turns ol > li.multiply { background: color-mix(in srgb, var(--accent) 30%, transparent); }
  .turns ol > li.softmax {
    background: repeating-linear-gradient(
      135deg, transparent 0 6px, color-mix(in srgb, currentColor 9%, transparent) 6px 9px
    );
  }
  .turns ol > li.idle { border-style: dashed; color: var(--quiet); }
  .turns figcaption { margin-top: 0.6rem; color: var(--quiet); }
  @media (max-width: 640px) {
    .turns ul > li { grid-template-columns: minmax(0, 1fr); margin-bottom: 8px; }
    /* The first half says it all; the words of the whole would not fit. */
    .turns ol > li.later { display: none; }
  }
</style>
"""
"""Rules for `turns`, on the page's own colours."""

Kind = Literal["fetch", "multiply", "softmax", "idle"]


@dataclass(frozen=True)
class Block:
    """What fills so many slots of a lane, all slots as long."""

    kind: Kind
    text: str
    slots: int = 1


@dataclass(frozen=True)
class Lane:
    """One group of warps, or one unit of the chip, over time."""

    name: str
    blocks: Sequence[Block]

    @property
    def slots(self) -> int:
        return sum(block.slots for block in self.blocks)


@dataclass(frozen=True)
class Scene:
    """Lanes that run side by side, and what they show together."""

    title: str
    lanes: Sequence[Lane]


def turns(scenes: Iterable[Scene], caption: str) -> str:
    """The scenes, one below the other.

    Raises:
        ValueError: two lanes of a scene are not equally long, so that they cannot stand side by side.
    """
    parts = [scene(one) for one in scenes]
    return f'{STYLE}<figure class="turns">{"".join(parts)}<figcaption>{escape(caption)}</figcaption></figure>'


def scene(shown: Scene) -> str:
    if len({lane.slots for lane in shown.lanes}) > 1:
        raise ValueError(f"The lanes of {shown.title!r} are not equally long.")
    lanes = "".join(lane(one) for one in shown.lanes)
    return f"<h4>{escape(shown.title)}</h4><ul>{lanes}</ul>"


def lane(shown: Lane) -> str:
    blocks, start = [], 0
    for block in shown.blocks:
        when = f"{block.kind} later" if start >= shown.slots / 2 else block.kind
        text = escape(block.text)
        blocks.append(f'<li class="{when}" style="--slots:{block.slots}">{text}</li>')
        start += block.slots
    return f"<li><span>{escape(shown.name)}</span><ol>{''.join(blocks)}</ol></li>"
