"""Two blocks of scores joined by their maximum and sum, as a formula with sliders."""

from app.components.merge_formula.door import merge_formula

__all__ = ["merge_formula"]
