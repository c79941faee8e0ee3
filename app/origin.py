"""Where the numbers of an export come from, in two lines."""

from __future__ import annotations

from dataclasses import dataclass

from app.text.export import IMPLEMENTATION, ORIGIN
from kernels.trace import Walk


@dataclass(frozen=True)
class Origin:
    """Of one walk. `layer` and `head` count from 0, as everywhere on the screen."""

    picture: str  # its title, or that it was uploaded
    model: str
    layer: int
    head: int
    versions: str  # such as "torch 2.11.0, Triton 3.6.0"
    when: str  # day, ISO


def lines(origin: Origin, walk: Walk, broken: Walk | None) -> tuple[str, str]:
    """What was walked, and with what it was made."""
    mistake = "" if broken is None else ORIGIN["broken"].format(name=broken.broken)
    first = ORIGIN["line"].format(
        picture=origin.picture,
        model=origin.model,
        layer=origin.layer,
        head=origin.head,
        implementation=IMPLEMENTATION[walk.implementation],
        block_q=walk.block_q,
        block_k=walk.block_k,
        mask=ORIGIN["masked" if walk.causal else "unmasked"],
        broken=mistake,
        dtype=walk.dtype,
    )
    return first, ORIGIN["made"].format(when=origin.when, versions=origin.versions)
