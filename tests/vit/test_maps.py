"""Maps land where they belong, say what is true of them, and cost what they should."""

from __future__ import annotations

import math

import pytest
import torch

from kernels import attention
from vit.grid import PatchGrid
from vit.maps import MAPS
from vit.maps.facts import facts
from vit.maps.proof import proof
from vit.maps.survey import all_maps, survey
from vit.trace import LayerTrace, Trace

FIVE = ("class", "register 1", "register 2", "register 3", "register 4")


def stub(rows: int, columns: int, prefix: tuple[str, ...] = ("class",)) -> Trace:
    """A trace in which every token looks at itself alone: P is the identity, in both of two heads."""
    grid = PatchGrid(rows, columns, 14, (0, 0, columns * 14, rows * 14))
    tokens = len(prefix) + grid.patches
    one_hot = torch.eye(tokens).mul(30).expand(1, 2, tokens, tokens)
    _, lse = attention(one_hot, one_hot, one_hot, scale=1.0)
    layer = LayerTrace(one_hot, one_hot, one_hot, lse)
    return Trace((layer, layer), grid, prefix, 1.0, "stub", "stub")


@pytest.mark.parametrize("prefix", [("class",), FIVE], ids=["class", "registers"])
@pytest.mark.parametrize(("rows", "columns"), [(10, 30), (20, 30), (1, 7)])
@pytest.mark.parametrize("name", MAPS)
def test_one_hot_maps_light_their_own_patch(name, rows, columns, prefix):
    trace = stub(rows, columns, prefix)
    for patch in {(0, 0), (0, columns - 1), (rows - 1, 0), (rows - 1, columns - 1), (rows // 3, 5)}:
        found = MAPS[name](trace, -1, patch)
        expected = torch.zeros(2, rows, columns)
        expected[:, patch[0], patch[1]] = 1
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("name", MAPS)
def test_a_token_by_name_lights_no_patch(name):
    trace = stub(4, 6, FIVE)
    for query in FIVE:
        assert MAPS[name](trace, 0, query).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("query", "words"),
    [((4, 0), "outside the grid"), ((0, -1), "outside the grid"), ("register 5", "no token")],
)
def test_a_query_that_is_not_there(query, words):
    with pytest.raises(ValueError, match=words):
        MAPS["row"](stub(4, 6, FIVE), -1, query)


def test_facts_of_weights_made_by_hand():
    trace = stub(3, 4, FIVE[:2])
    weights = torch.zeros(2, 14)
    weights[0, 1] = 0.25  # register 1
    weights[0, 2 + 0] = 0.25  # patch (0, 0)
    weights[0, 2 + 11] = 0.5  # patch (2, 3)
    weights[1] = 3.0  # even, and not summing to 1, as a column may
    found = facts(weights, trace, (0, 0))
    assert found.prefix_share.tolist()[0] == [0.0, 0.25]
    assert found.entropy_bits[0].item() == pytest.approx(1.5)
    assert found.entropy_bits[1].item() == pytest.approx(math.log2(14))
    assert found.mean_distance[0].item() == pytest.approx(math.hypot(2, 3) * 2 / 3)
    assert found.strongest[0, :2].tolist() == [13, 2]
    assert found.strongest.shape == (2, 10)
    assert torch.isnan(facts(weights, trace, "class").mean_distance).all()


def test_facts_of_nothing_are_finite():
    found = facts(torch.zeros(1, 13), stub(3, 4), (1, 1))
    assert found.entropy_bits.item() == found.mean_distance.item() == 0


def test_a_survey_is_every_layers_row_and_column(model, cat):
    trace = model.trace(cat, 112)
    for direction, name in (("looks", "row"), ("looked_at", "column")):
        values = survey(trace, (2, 3), direction).values
        assert values.shape == (12, 6, trace.tokens)
        for layer in (0, 7, 11):
            expected = MAPS[name](trace, layer, (2, 3)).flatten(1)
            assert torch.allclose(values[layer, :, 1:], expected, atol=1e-7)
    assert (survey(trace, "class").values.sum(-1) - 1).abs().max() < 1e-4


def test_read_in_passing_equals_read_from_a_trace(model, cat):
    trace = model.trace(cat, 112)
    found = all_maps(model, cat, 112, (2, 3))
    for layer in range(12):
        assert torch.allclose(found[layer], MAPS["row"](trace, layer, (2, 3)), atol=1e-6)


def test_one_layer_alone_is_that_layer(model, cat):
    whole, told = model.trace(cat, 112), []
    single = model.trace(cat, 112, only=4, progress=lambda done, of: told.append((done, of)))
    assert len(single.layers) == 1
    assert torch.equal(single.layers[0].q, whole.layers[4].q)
    assert told == [(i, 5) for i in range(1, 6)]
    assert single.nbytes * 12 == whole.nbytes


@pytest.mark.slow
def test_many_tokens_at_once_or_in_slices_are_the_same(model, cat, monkeypatch):
    whole = model.trace(cat, 224)
    monkeypatch.setattr("vit.block.Mlp.SLICE", 50)
    sliced = model.trace(cat, 224)
    for a, b in zip(whole.layers, sliced.layers, strict=True):
        assert torch.allclose(a.q, b.q, atol=1e-4)


def test_the_proof_sees_a_wrong_log_sum_exp(model, cat):
    trace = model.trace(cat, 112)
    right = proof(trace, -1, (1, 1))
    assert right.largest_error < 1e-4
    assert right.row_sum_low == pytest.approx(1, abs=1e-4)
    last = trace.layers[-1]
    wrong = LayerTrace(last.q, last.k, last.v, last.log_sum_exp + 0.01)
    shifted = Trace((wrong,), trace.grid, trace.prefix, trace.scale, "stub", "stub")
    assert proof(shifted, -1, (1, 1)).row_sum_high < 0.995
