"""The same model in half precision through the Triton kernels, at every size up to 21,905 tokens."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vit import MAPS, load_image, load_model
from vit.maps.proof import proof
from vit.model import VisionTransformer

SQUARE = Path(__file__).parents[2] / "app" / "samples" / "astronaut.jpg"
QUERIES = ["class", (0, 0), (7, 9)]

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def photo():
    return load_image(SQUARE)


@pytest.fixture(scope="module")
def half() -> VisionTransformer:
    return load_model("dinov2-small", "cuda", torch.float16)


@pytest.fixture(scope="module")
def full() -> VisionTransformer:
    return load_model("dinov2-small", "cuda", torch.float32)


def last_maps(model: VisionTransformer, photo, side: int, implementation: str) -> Tensor:
    """Row and column maps of some queries in the last layer, as one float64 tensor."""
    trace = model.trace(photo, side, implementation, only=model.config.layers - 1)
    assert trace.implementation == implementation
    maps = [make(trace, 0, query) for query in QUERIES for make in MAPS.values()]
    return torch.stack(maps).double()


@pytest.mark.parametrize(("side", "tokens"), [(224, 257), (518, 1370), (1036, 5477), (2072, 21905)])
def test_maps_within_twice_eagers_own_error(half, full, photo, side, tokens):
    """Errors of the whole model in float16 against the whole model in float32, ours and eager's."""
    truth = last_maps(full, photo, side, "eager")
    ours = (last_maps(half, photo, side, "fa2") - truth).abs()
    eager = (last_maps(half, photo, side, "eager") - truth).abs()
    assert tokens == 1 + truth.shape[-1] * truth.shape[-2]
    rounding = torch.finfo(torch.float16).eps * truth.max()
    logging.info(
        "%d tokens: ours %.2e, eager %.2e, rounding %.1e", tokens, ours.max(), eager.max(), rounding
    )
    logging.info("means: ours %.2e, eager %.2e", ours.mean(), eager.mean())
    assert ours.max() <= 2 * (eager.max() + rounding)
    assert ours.mean() <= 2 * eager.mean()


@pytest.mark.parametrize("side", [224, 518, 1036, 2072])
def test_the_proof_holds(half, photo, side):
    """Rows sum to 1 and equal float64's on the same q and k."""
    trace = half.trace(photo, side)
    for layer in (0, 5, 11):
        found = proof(trace, layer, (3, 3))
        assert abs(found.row_sum_low - 1) < 1e-3
        assert abs(found.row_sum_high - 1) < 1e-3
        # A few units in the last place of the float32 log-sum-exp, which exp passes on.
        unit = torch.finfo(torch.float32).eps * trace.layers[layer].log_sum_exp.abs().max().item()
        assert found.largest_error <= 4 * unit
