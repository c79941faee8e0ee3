"""Each mistake is wrong by the figure that theory gives for it, and right where theory says so."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.trace import BROKEN, Walk, walk
from kernels.trace.walker import WALKED

pytestmark = pytest.mark.interpreter

FLASH = ("fa1", "fa2", "fa3")
FORWARD = ("naive", *FLASH)
GROWS = ("sum-not-rescaled", "output-not-rescaled", "alpha-upside-down")
"""Mistakes that make no difference until a later tile brings a larger maximum."""

BLOCK = 16
HIGHER = 3.0
ALPHA = math.exp(-HIGHER)

BY_FLASH = pytest.mark.parametrize("name", FLASH)
BY_FORWARD = pytest.mark.parametrize("name", FORWARD)


def scored(name: str, *scores: tuple[int, float]) -> tuple[Tensor, Tensor]:
    """q and k such that every query meets (count, score), ... on its way past the keys, with scale 1."""
    along = torch.cat([torch.full((count,), score) for count, score in scores])
    along = along.flip(0) if name == "fa3" else along  # which begins at the end
    q, k = torch.zeros(len(along), BLOCK), torch.zeros(len(along), BLOCK)
    q[:, 0], k[:, 0] = 1.0, along
    return q, k


def walked(
    name: str, q: Tensor, k: Tensor, v: Tensor, broken: str | None = None, causal: bool = False
) -> Walk:
    return walk(
        q, k, v, name, block_q=BLOCK, block_k=BLOCK, broken=broken, causal=causal, scale=1.0
    )


def ones_then_zeros(name: str, tokens: int, ones: int) -> Tensor:
    """Values that tell how much weight those keys get which are met first."""
    along = (torch.arange(tokens) < ones).float()
    along = along.flip(0) if name == "fa3" else along
    return along[:, None].expand(-1, BLOCK).contiguous()


def assert_output(found: Walk, figure: float) -> None:
    expected = torch.full_like(found.output, figure)
    torch.testing.assert_close(found.output, expected, rtol=1e-5, atol=1e-6)


# --- two tiles of 16 keys, scores 0 and then 3: alpha is e^-3 ---------------------------------------------


@pytest.mark.parametrize("name", FORWARD)
def test_what_is_right(name):
    q, k = scored(name, (BLOCK, 0.0), (BLOCK, HIGHER))
    assert_output(walked(name, q, k, torch.ones_like(q)), 1.0)
    found = walked(name, q, k, ones_then_zeros(name, 32, BLOCK))
    assert_output(found, ALPHA / (1 + ALPHA))
    assert found.largest_error < 1e-6


@BY_FLASH
@pytest.mark.parametrize(
    ("broken", "figure"),
    [
        ("sum-not-rescaled", (1 + ALPHA) / 2),
        ("output-not-rescaled", 2 / (1 + ALPHA)),
        ("divided-every-step", (ALPHA + BLOCK) / (BLOCK * (1 + ALPHA))),
        ("alpha-upside-down", 1.0),  # sum and output are both wrong, by the same factor
        ("no-maximum", 1.0),
        ("log-base", 1.0),
    ],
)
def test_what_rows_of_weights_sum_to(name, broken, figure):
    """Values of 1 give the sum of each row's weights, 1 where all is right."""
    q, k = scored(name, (BLOCK, 0.0), (BLOCK, HIGHER))
    found = walked(name, q, k, torch.ones_like(q), broken)
    assert_output(found, figure)
    assert found.largest_error == pytest.approx(abs(figure - 1), abs=1e-6)


@BY_FLASH
def test_alpha_upside_down_turns_the_shares_around(name):
    q, k = scored(name, (BLOCK, 0.0), (BLOCK, HIGHER))
    v = ones_then_zeros(name, 32, BLOCK)
    found = walked(name, q, k, v, "alpha-upside-down")
    assert_output(found, 1 / (1 + ALPHA))  # 95 % where 5 % is right
    assert found.log_sum_exp[0].item() == pytest.approx(
        HIGHER + math.log(BLOCK * (1 + 1 / ALPHA)), rel=1e-5
    )


@BY_FORWARD
def test_the_log_base(name):
    """2^-3 in the place of e^-3."""
    q, k = scored(name, (BLOCK, 0.0), (BLOCK, HIGHER))
    found = walked(name, q, k, ones_then_zeros(name, 32, BLOCK), "log-base")
    assert_output(found, 2**-HIGHER / (1 + 2**-HIGHER))
    q, k = scored(name, (32, HIGHER))
    found = walked(name, q, k, ones_then_zeros(name, 32, BLOCK), "log-base")
    assert_output(found, 0.5)  # equal scores: right


@BY_FORWARD
@pytest.mark.parametrize(
    ("score", "figure"), [(50.0, 1.0), (-50.0, 1.0), (200.0, math.nan), (-200.0, 0.0)]
)
def test_no_maximum(name, score, figure):
    """e^200 is infinite in float32 and e^-200 is 0; between them nothing is wrong."""
    q, k = scored(name, (32, score))
    found = walked(name, q, k, torch.ones_like(q), "no-maximum")
    if math.isnan(figure):
        assert found.output.isnan().all()
        assert found.largest_error == math.inf
    else:
        assert_output(found, figure)
    assert not found.steps[-1].running_max.any()
    assert_output(walked(name, q, k, torch.ones_like(q)), 1.0)


@BY_FORWARD
def test_the_tail(name):
    """20 keys in two tiles of 16: twelve more, with score 0, get a share."""
    q, k = scored(name, (20, HIGHER))
    v = torch.ones_like(q)
    found = walked(name, q, k, v, "tail-not-masked")
    assert_output(found, 20 / (20 + 12 * ALPHA))
    ends = [step for step in found.steps if step.key_start + step.keys == 20]
    assert all(step.scores.shape[1] == step.keys for step in ends)
    shown = [step.extra["padding"] for step in found.steps if "padding" in step.extra]
    assert [list(padding.shape) for padding in shown] == [[BLOCK, 12]]
    assert not shown[0].any()
    assert_output(walked(name, q, k, v, "tail-not-masked", causal=True), 1.0)
    q, k = scored(name, (32, HIGHER))
    assert_output(walked(name, q, k, torch.ones_like(q), "tail-not-masked"), 1.0)


# --- right where theory says so -----------------------------------------------------------------------


@BY_FLASH
@pytest.mark.parametrize("broken", [*GROWS, "divided-every-step"])
def test_one_tile_is_right_to_the_bit(name, broken):
    q, k, v = (torch.randn(13, BLOCK) for _ in range(3))
    for causal in (False, True):
        found = walked(name, q, k, v, broken, causal)
        right = walked(name, q, k, v, causal=causal)
        assert len(found.steps) == 1
        assert found.output.equal(right.output)
        assert found.log_sum_exp.equal(right.log_sum_exp)


@BY_FLASH
@pytest.mark.parametrize("broken", GROWS)
def test_the_largest_first_is_right(name, broken):
    q, k = scored(name, (1, HIGHER), (60, 0.0))
    v = torch.randn(61, BLOCK)
    assert walked(name, q, k, v, broken).largest_error < 1e-6
    q, k = scored(name, (60, 0.0), (1, HIGHER))
    assert walked(name, q, k, v, broken).largest_error > 0.1


# --- on random data -----------------------------------------------------------------------------------


@BY_FLASH
def test_divided_in_every_step_leaves_the_share_of_the_last_tile(name):
    """1370 tokens, 22 tiles: all that is left is about 26 / 1370; the rows are 98 % wrong. In fa3 64 are last."""
    kept = (64 if name == "fa3" else 26) / 1370
    q, k = (torch.randn(1370, 16) for _ in range(2))
    found = walk(q, k, torch.ones(1370, 16), name, broken="divided-every-step")
    assert found.output.mean().item() == pytest.approx(kept, rel=0.1)
    assert found.largest_error == pytest.approx(1 - kept, abs=0.03)
    assert walk(q, k, torch.ones(1370, 16), name).largest_error < 1e-6


@pytest.mark.parametrize(
    ("name", "broken"), [(name, one.name) for one in BROKEN.values() for name in one.applies_to]
)
def test_every_mistake_shows(name, broken):
    """Four tiles and a bit of random data; large scores for the maximum, which needs them."""
    q, k, v = (torch.randn(70, BLOCK) for _ in range(3))
    factor = 40.0 if broken == "no-maximum" else 1.0
    found = walked(name, factor * q, k, v, broken)
    assert found.broken == broken
    assert found.largest_error > 0.01
    assert walked(name, factor * q, k, v).largest_error < 1e-4
    last = found.steps[-1]  # what moves does not change
    assert (last.bytes_read, last.bytes_written) == (found.formula_read, found.formula_written)


@pytest.mark.parametrize(
    "broken", [name for name in BROKEN if "naive" not in BROKEN[name].applies_to]
)
def test_fa1_and_fa2_go_wrong_by_the_same_amount(broken):
    """One keeps its output divided and the other does not; the mistake is one."""
    q, k, v = (torch.randn(70, BLOCK) for _ in range(3))
    one, two = (walked(name, q, k, v, broken).output for name in ("fa1", "fa2"))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


# --- words --------------------------------------------------------------------------------------------


def test_each_is_told_in_whole_sentences():
    for name, one in BROKEN.items():
        assert one.name == name
        assert set(one.applies_to) <= set(WALKED)
        for text in (one.wrong, one.why, one.exact_when):
            assert text[0].isupper()
            assert text.endswith(".")
            assert ". " not in text
