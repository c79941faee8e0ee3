"""How far a result may be from the truth: never more than twice as far as eager torch is."""

from __future__ import annotations

import torch
from torch import Tensor


def assert_within_eager_error(
    result: Tensor, eager: Tensor, truth: Tensor, what: str, floor: float = 0.0
) -> None:
    """|result - float64| <= 2 * |eager in the same dtype - float64| + rounding, in the largest error.

    Rounding is two units in the last place of the largest true value, in the result's own dtype, plus
    `floor`. NaN never passes; infinities must stand where the truth has them.
    """
    finite = torch.isfinite(truth)
    assert torch.equal(torch.isfinite(result), finite), f"{what}: not finite where the truth is"
    assert torch.equal(result[~finite].double(), truth[~finite]), f"{what}: another infinity"
    if not finite.any():
        return
    error = largest(result[finite], truth[finite])
    rounding = torch.finfo(result.dtype).eps * truth[finite].abs().max().item()
    bound = 2 * largest(eager[finite], truth[finite]) + 2 * rounding + floor
    assert error <= bound, f"{what}: error {error:.3g} over the bound {bound:.3g}"


def score_floor(scores: Tensor, result: Tensor) -> float:
    """What two units in the last place of the largest float32 score do to a result, through exp."""
    scores, result = scores[torch.isfinite(scores)], result[torch.isfinite(result)]
    if not scores.numel() or not result.numel():
        return 0.0
    units = 2 * torch.finfo(torch.float32).eps * scores.abs().max().item()
    return units * result.abs().max().item()


def largest(approximation: Tensor, truth: Tensor) -> float:
    """Largest absolute difference, in float64."""
    return (approximation.double() - truth.double()).abs().max().item()
