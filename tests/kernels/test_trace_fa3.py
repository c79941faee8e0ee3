"""What only fa3's walks have: the last keys first, a maximum that may lag behind, and a twin that stands in."""

from __future__ import annotations

import pytest
import torch

from kernels.problem import Problem
from kernels.registry import load
from kernels.trace import walk
from kernels.trace.steps import IN_ONE_PIECE, NOTES
from tests.kernels.test_trace import ALL, INTERPRETED, close, head, walked


@INTERPRETED
def test_fa3_begins_with_the_tile_that_is_no_whole_one():
    found = walked("fa3", 197, 64)
    spans = [(step.key_start, step.keys) for step in found.steps]
    assert spans == [(192, 5), (128, 64), (64, 64), (0, 64)]


@INTERPRETED
@pytest.mark.parametrize("causal", [False, True])
def test_fa3_rescales_seldom(causal):
    """A maximum may lag behind by 2^13: what it is measured against cancels, so sums and output are right still."""
    q, k, v, _ = head(197, 128)
    found = walk(4 * q, k, v, "fa3", 2, 64, 32, causal=causal)
    assert found.most_rise == pytest.approx(13 * 0.6931472)
    assert walked("fa2", 197, 64).most_rise == 0
    assert walk(q, k, v, "fa3", broken="log-base").most_rise == 0
    rows = slice(found.query_start, found.query_start + found.rows)
    scores = found.scale * 4 * q[rows].double() @ k.double().T
    if causal:
        hidden = torch.arange(197)[None] > torch.arange(197)[rows, None]
        scores[hidden] = -torch.inf
    before, lagged = torch.full([found.rows], -torch.inf), 0
    for step in found.steps:
        seen = scores[:, step.key_start :].amax(1)
        assert (step.running_max.double() <= seen + 1e-3).all()
        assert (step.running_max.double() >= seen - found.most_rise - 1e-3).all()
        lagged += int((step.running_max.double() < seen - 1e-3).sum())
        stays = step.running_max == before
        assert step.rescale[stays & before.isfinite()].eq(1).all()
        shift = step.running_max.double().nan_to_num(neginf=0.0)[:, None]
        weights = (scores[:, step.key_start :] - shift).exp()
        close(step.running_sum, weights.sum(1))
        size = weights.sum(1, keepdim=True).clamp_min(1)  # to 2^13 where the maximum lags
        close(step.output / size, weights @ v.double()[step.key_start :] / size)
        before = step.running_max
    assert lagged > 0
    assert found.largest_error < 1e-5


@INTERPRETED
def test_only_a_walk_of_the_twin_has_a_note():
    notes = {name: walked(name, 197, 64).note for name in ALL}
    few = notes.pop("fa3")
    assert "twin" in few
    assert few.endswith(IN_ONE_PIECE)
    assert set(notes.values()) == {""}
    q, k, v, _ = head(400, 16)
    assert walk(q, k, v, "fa3", 1, 16, 128).note == NOTES["fa3"]


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "width"), [(1370, 64), (300, 128)])
def test_the_walk_of_the_twin_ends_where_fa3_does(causal, dtype, tokens, width):
    """On a Hopper GPU: the same rows by fa3 itself, up to the rounding of weights and output to 16 bits."""
    q, k, v = (t.cuda() for t in head(tokens, width, dtype)[:3])
    problem = Problem(1, 1, tokens, tokens, width, str(dtype).removeprefix("torch."), causal)
    reason = load("fa3").supports(problem, q.device)
    if reason:
        pytest.skip(reason)
    output, lse = load("fa3").forward(
        q[None, None], k[None, None], v[None, None], width**-0.5, causal
    )
    rounding = 4 * torch.finfo(dtype).eps * v.abs().max().item()
    for tile in (0, 1, (tokens - 1) // 128):
        found = walk(q, k, v, "fa3", tile, 128, 128 if width == 64 else 64, causal=causal)
        rows = slice(found.query_start, found.query_start + found.rows)
        difference = (output[0, 0, rows].cpu().double() - found.output.double()).abs().max().item()
        assert difference <= rounding
        torch.testing.assert_close(lse[0, 0, rows].cpu(), found.log_sum_exp, rtol=1e-5, atol=2e-5)
