"""What lies on the chip adds up, and what does not fit gives way."""

from __future__ import annotations

import pytest
import torch

from app.chip import fitting, limit_of, needs, parts
from app.state_tiles import ALGORITHMS, SIDES
from kernels.trace import sram_bytes


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("head_dim", [1, 40, 64, 128, 256])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_parts_are_the_whole(algorithm: str, head_dim: int, dtype: str) -> None:
    for tile, need in needs(algorithm, head_dim, dtype).items():
        found = parts(algorithm, tile, head_dim, dtype)
        assert sum(found.values()) == need == sram_bytes(algorithm, *tile, head_dim, dtype)
        assert min(found.values()) > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what is shown without a GPU")
def test_without_a_gpu_the_recorded_one_stands_in() -> None:
    limit = limit_of(torch.device("cpu"))
    assert (limit.bytes, limit.here) == (227 * 1024, False)


def test_what_does_not_fit_gives_way_to_the_largest_square_that_does() -> None:
    need = needs("fa2-backward", 64)
    assert need[128, 128] > 227 * 1024 > need[64, 64]
    assert fitting((128, 128), need, 227 * 1024) == (64, 64)
    assert fitting((128, 16), need, 227 * 1024) == (128, 16)
    assert fitting((64, 64), need, 1) == (SIDES[0], SIDES[0])
