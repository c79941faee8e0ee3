"""A few free pictures to start with; CREDITS.md says whose they are. The first is the default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Sample:
    path: Path
    title: str
    credit: str
    licence: str


SAMPLES = {
    "cat": Sample(FOLDER / "cat.png", "Cat", "Stéfan van der Walt", "CC0 1.0"),
    "astronaut": Sample(FOLDER / "astronaut.jpg", "Astronaut", "NASA", "Public domain"),
    "coffee": Sample(FOLDER / "coffee.jpg", "Coffee", "Rachel Michetti", "CC0 1.0"),
    "rocket": Sample(FOLDER / "rocket.jpg", "Rocket", "SpaceX", "Public domain"),
}
