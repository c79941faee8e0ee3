"""One row of a walk at one step: the weights that its output is made of so far. numpy only.

The browser's player computes the same in `app/components/tile_player/walk.js`.
"""

from __future__ import annotations

import numpy as np

from kernels.trace import Step, Walk

FLASH = ("fa1", "fa2", "fa3")
DIVIDED = "divided-every-step"


def weights_so_far(walk: Walk, index: int, row: int) -> np.ndarray:
    """float64 [tokens]: what each value counts for in the row's output after step `index`; NaN where not seen.

    For a broken walk these are the weights that its mistake really gives.
    """
    found = np.full(walk.tokens, np.nan)
    if walk.implementation not in FLASH:
        return stored_weights(walk, index, row, found)
    waits = walk.implementation != "fa1" and walk.broken != DIVIDED  # for its division by the sum
    with np.errstate(all="ignore"):  # a broken walk may divide 0 by 0, and shows it
        factor = 1 / sum_of(walk.steps[index], row) if waits else np.float64(1)
        for step in reversed(walk.steps[: index + 1]):
            divisor, kept = factors(walk, step, row)
            weights = powers(walk, step, row) / divisor * factor
            found[step.key_start : step.key_start + step.keys] = weights
            factor *= kept
    return found


def powers(walk: Walk, step: Step, row: int) -> np.ndarray:
    """The exponentials of one tile against the maximum of its time; 0 where a mask hides.

    Rounded to float32, as in the kernel, so that what overflows there does here.
    """
    scores = step.scores[row].double().numpy()
    maximum = at(step.running_max, row)
    shift = 0.0 if np.isneginf(maximum) else maximum
    if walk.broken == "log-base":
        scores = np.log(2) * scores
    found = np.exp(scores - shift).astype(np.float32).astype(np.float64)
    return np.where(np.isneginf(scores), 0.0, found)


def factors(walk: Walk, step: Step, row: int) -> tuple[np.float64, np.float64]:
    """What a weight is divided by in its step, and what the output before is multiplied by there."""
    rescale, one = at(step.rescale, row), np.float64(1)
    if walk.implementation == "fa1":  # its factor brings the old sum in and the new one out
        return sum_of(step, row), rescale
    if walk.broken == DIVIDED:
        return sum_of(step, row), rescale / sum_of(step, row)
    return one, one if walk.broken == "output-not-rescaled" else rescale


def sum_of(step: Step, row: int) -> np.float64:
    """The sum that the kernel divides by: 1 for a row that has seen nothing."""
    return at(step.running_sum, row) or np.float64(1)


def stored_weights(walk: Walk, index: int, row: int, found: np.ndarray) -> np.ndarray:
    """naive and backward hold the weights themselves; naive has none before its second kernel."""
    phase = walk.steps[index].phase
    if phase == "pairs":
        return found
    source = "softmax" if phase == "sums" else phase
    for number, step in enumerate(walk.steps):
        here = step.phase == source and (phase == "sums" or number <= index)
        if here and "weights" in step.extra:
            weights = step.extra["weights"][row].double().numpy()
            found[step.key_start : step.key_start + step.keys] = weights
    return found


def at(values, row: int) -> np.float64:
    return np.float64(values[row].item())
