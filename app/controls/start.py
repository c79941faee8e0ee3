"""What the page asks first: a patch that is worth a look, and a sentence that says what to try."""

from __future__ import annotations

from app.text import en
from vit.grid import PatchGrid
from vit.image import Photo

WORTH_A_LOOK = {
    "cat": (0.38, 0.38),  # an eye
    "astronaut": (0.21, 0.43),  # the face
    "coffee": (0.36, 0.48),  # the coffee
    "rocket": (0.45, 0.50),  # the rocket
}
"""How far down and how far across, as parts of the picture's height and width."""


def first_patch(name: str, shown: Photo, grid: PatchGrid) -> tuple[int, int]:
    """The patch for a picture on which none is chosen yet: a sample's own, else the middle."""
    width, height = shown.picture.size
    down, across = WORTH_A_LOOK.get(name, (0.5, 0.5))
    return grid.patch_at(across * width, down * height) or (grid.rows // 2, grid.columns // 2)


def hint(name: str) -> str:
    """What to try first on this picture."""
    return en.HEADS.get(f"try_{name}", en.HEADS["try_other"])
