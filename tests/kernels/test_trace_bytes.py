"""The bytes of a walk: counted at every step, and the formula says the same."""

from __future__ import annotations

import pytest
import torch

from kernels.problem import Problem
from kernels.tile_sizes import Tiles, with_tiles
from kernels.trace.bytes_so_far import bytes_by_formula
from kernels.trace.cut import Cut
from kernels.traffic import counted, formula
from tests.kernels.test_trace import BLOCKS, BY_NAME, FORWARD, INTERPRETED, head, walked


@INTERPRETED
@BY_NAME
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_counted_bytes_equal_the_formula_at_every_step(name, causal, dtype, blocks):
    for tile in (0, 1, 196 // blocks[0]):
        found = walked(name, 197, 40, blocks, causal, tile, dtype)
        q, k, v, _ = head(197, 40, dtype)
        cut = Cut.of(q, k, v, name, tile, Tiles(blocks[0], blocks[1], 4, 1), found.scale, causal)
        assert [(s.bytes_read, s.bytes_written) for s in found.steps] == bytes_by_formula(cut)
        last = found.steps[-1]
        assert (last.bytes_read, last.bytes_written) == (found.formula_read, found.formula_written)
        assert found.bytes_source == "counted"


@INTERPRETED
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", FORWARD)
def test_the_whole_head_counts_as_the_formula_says(name, blocks, causal):
    tiles, problem = (
        Tiles(blocks[0], blocks[1], 4, 1),
        Problem(1, 1, 197, 197, 40, "float32", causal),
    )
    with with_tiles(tiles):
        whole = counted(problem, name, in_worker=False)
    assert whole.detail == formula(problem, name, tiles=tiles).detail
    found = walked(name, 197, 40, blocks, causal)
    assert (found.head_read, found.head_written) == (whole.bytes_read, whole.bytes_written)


@INTERPRETED
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", ["fa2", "fa3", "fa2-backward"])
def test_all_walks_of_a_head_add_up_to_it(name, blocks, causal):
    """Programs of fa2 and fa3 share nothing; a causal mask and tiles of two sizes change nothing about that."""
    walks = [walked(name, 197, 40, blocks, causal, tile) for tile in range(196 // blocks[0] + 1)]
    assert sum(w.formula_read for w in walks) == walks[0].head_read
    assert sum(w.formula_written for w in walks) == walks[0].head_written
