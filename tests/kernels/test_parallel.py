"""Ring attention: three real processes on the CPU, against one process that holds everything."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import attention, attention_columns, attention_product, attention_rows
from kernels.parallel import ring_attention
from kernels.parallel.merge import Merged
from kernels.parallel.shards import Shards
from tests.kernels import ranks_work
from tests.kernels.ranks_work import CASES, COLUMNS, ROWS, whole
from tests.ranks import run_ranks, sentence_of


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict]:
    """name -> results, of each of three ranks; groups of two and of one are made among them."""
    return run_ranks(3, ranks_work.every_case, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict]:
    """What two ranks found that needs no cases."""
    return run_ranks(2, ranks_work.pairs, tmp_path_factory.mktemp("two"))


def parts(answers: list[dict], name: str) -> list[dict]:
    """The case's results, in the order of its ranks."""
    return [answer[name] for answer in answers if name in answer]


def joined(answers: list[dict], name: str) -> tuple[Tensor, Tensor]:
    found = parts(answers, name)
    return torch.cat([p["output"] for p in found], 2), torch.cat([p["lse"] for p in found], 2)


@pytest.mark.parametrize("name", CASES)
def test_equals_one_process(answers, name):
    world, lengths, _, dtype, _ = CASES[name]
    found = parts(answers, name)
    assert [p["output"].shape[2] for p in found] == list(lengths)
    assert len(found) == world
    output, lse = joined(answers, name)
    true_output, true_lse = ranks_work.truth(name)
    assert output.dtype == dtype
    assert lse.dtype == torch.float32
    # Each part is rounded to half precision once, and the whole once more; so are the scores.
    eps = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps
    assert (output.float() - true_output).abs().max() <= 1e-5 + 2 * eps * true_output.abs().max()
    assert (lse - true_lse).abs().max() <= 1e-5 + eps / 8
    assert all(p["repeats"] for p in found), "shards that are known give other bits"


@pytest.mark.parametrize("name", CASES)
def test_maps_equal_one_process(answers, name):
    q, k, _, w = whole(name)
    causal = CASES[name][2]
    first, *others = parts(answers, name)
    lse = joined(answers, name)[1]
    true = {
        "rows": attention_rows(q, k, lse, ROWS, causal=causal),
        "columns": attention_columns(q, k, lse, COLUMNS, causal=causal),
        "received": attention_product(None, q, k, lse, causal=causal),
        "weighted": attention_product(w, q, k, lse, causal=causal),
    }
    for kind, expected in true.items():
        assert first[kind].shape == expected.shape
        assert (first[kind] - expected).abs().max() <= 1e-5, kind
        assert all(other[kind] is None for other in others)
    assert (first["rows"].sum(-1) - 1).abs().max() <= (1e-4 if "half" in name else 1e-5)
    assert [p["on the last"] for p in [first, *others]] == [*[False] * len(others), True]


def test_one_rank_gives_the_bits_of_attention(answers):
    q, k, v, _ = whole("one")
    output, lse = attention(q, k, v)
    assert torch.equal(joined(answers, "one")[0], output)
    assert torch.equal(joined(answers, "one")[1], lse)


def test_the_cases_can_fail():
    """A ring that forgot one shard would be found out, and so would log-sum-exps that were added."""
    q, k, v, _ = whole("two")
    near, far = (attention(q, k[:, :, p], v[:, :, p]) for p in (slice(45), slice(45, None)))
    true_output, true_lse = ranks_work.truth("two")
    assert (near[0] - true_output).abs().max() > 1e-2
    assert (near[1] + far[1] - true_lse).abs().max() > 1e-2


def test_cross_attention_with_keys_that_win(two):
    found = [answer["far keys"] for answer in two]
    make = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, 1, 8, 4, generator=make) for _ in range(3))
    keys = torch.cat([k[:, :, :3], k[:, :, :4] + 40], 2)
    output, lse = attention(q.abs(), keys, torch.cat([v[:, :, :3], v[:, :, :4]], 2), scale=0.25)
    for part_output, part_lse in found:
        torch.testing.assert_close(part_output, output, atol=1e-5, rtol=0)
        torch.testing.assert_close(part_lse, lse, atol=1e-5, rtol=1e-6)


def test_nothing_travels_while_a_shard_is_used(two):
    """Else, on a GPU, NCCL's kernel and attention's wait for each other's multiprocessors."""
    assert [answer["on their way"] for answer in two] == [[(0, 0), (1, 0)], [(1, 0), (0, 0)]]


# --- the rule of merging ----------------------------------------------------------------------------


def test_merged_rows_that_see_nothing_stay_nothing():
    nothing = torch.zeros(1, 1, 3, 2), torch.full((1, 1, 3), -torch.inf)
    something = torch.ones(1, 1, 3, 2), torch.tensor([[[0.5, -torch.inf, 3.0]]])
    something[0][:, :, 1] = 0.0
    for order in ((nothing, something), (something, nothing), (nothing, nothing)):
        merged = Merged(*order[0])
        merged.add(*order[1])
        expected = nothing if order[1] is nothing and order[0] is nothing else something
        assert torch.equal(merged.output(), expected[0])
        assert torch.equal(merged.log_sum_exp, expected[1])


def test_merging_leaves_its_parts_alone_and_holds_huge_log_sum_exps():
    part = torch.full((1, 1, 1, 1), 2.0), torch.tensor([[[3e4]]])
    other = torch.full((1, 1, 1, 1), 6.0), torch.tensor([[[3e4]]])
    merged = Merged(*part)
    merged.add(*other)
    assert merged.output().item() == pytest.approx(4.0)
    assert part[0].item() == 2.0
    assert merged.log_sum_exp.item() == pytest.approx(3e4 + 0.6931, abs=4e-3)


def test_halves_are_rounded_once():
    """Three parts of 1, 1 and 1 + 4 ulp, whose mean rounds up only if no sum was rounded before."""
    ulp = torch.finfo(torch.float16).eps
    values = (1.0, 1.0 + 4 * ulp, 1.0)
    tensors = [torch.full((1, 1, 1, 1), value, dtype=torch.float16) for value in values]
    merged = Merged(tensors[0], torch.zeros(1, 1, 1))
    for tensor in tensors[1:]:
        merged.add(tensor, torch.zeros(1, 1, 1))
    assert merged.sum.dtype == torch.float32
    assert merged.sum.item() == pytest.approx(1 + 4 * ulp / 3, abs=1e-6)
    assert merged.output().item() == 1 + ulp


@pytest.mark.parametrize(("tokens", "world"), [(10, 3), (1, 2), (0, 2), (1_002_002, 2), (7, 7)])
def test_even_shards(tokens, world):
    found = [Shards.even(tokens, world, rank) for rank in range(world)]
    lengths = found[0].keys
    assert sum(lengths) == tokens
    assert max(lengths) - min(lengths) <= 1
    assert [shards.first_query for shards in found] == [sum(lengths[:r]) for r in range(world)]
    assert found[-1].first_key(world - 1) + lengths[-1] == tokens


# --- faults -----------------------------------------------------------------------------------------


def test_wrong_tensors_get_one_sentence_on_every_rank(two):
    first, second = (answer["refusals"] for answer in two)
    for kind, words in {
        "heads": "ValueError: rank 1 and rank 0 have not the same number of heads",
        "dtype": "ValueError: rank 1 and rank 0 have not the same dtype",
        "scale": "ValueError: rank 1 and rank 0 have not the same scale",
        "causal": "ValueError: rank 1 and rank 0 have not the same causal",
        "causal across": "ValueError: causal needs the same tokens",
        "gradient": "ValueError: ring_attention has no backward",
        "parts": "ValueError: rank 1 has a part of shape [1, 2, 5, 8]",
        "row": "ValueError: rows must lie in 0 to 9",
        "implementation": "ValueError: implementation 'fa9' is not known",
    }.items():
        assert first[kind].startswith(words), kind
        assert second[kind].startswith(words), kind
    assert first["own fault"].startswith("ValueError: rank 1 refused its tensors")
    assert second["own fault"].startswith("ValueError: k must be [1, kv_heads, keys, 8]")
    assert second["outsider"].startswith("ValueError: rank 1 is not in this group")
    assert first["implementation of one"] == "nothing was refused"
    assert second["implementation of one"] == second["implementation"]
    assert first["after all"] == second["after all"] == "nothing was refused"


def test_without_a_process_group():
    q = torch.zeros(1, 1, 2, 4)
    assert "start with torchrun" in sentence_of(lambda: ring_attention(q, q, q))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gone at the transfer", "late"])
def test_a_lost_rank_ends_in_a_sentence(tmp_path, way):
    sentence = run_ranks(2, ranks_work.lost, tmp_path, way, tmp_path, meet_limit_s=3)[0]
    assert "LostRank: another rank ended or did not" in sentence
    assert int(sentence.split()[0]) <= 20, "that took longer than the group's limit"


# --- on GPUs ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("tokens", [129, 5001])
def test_nccl_passes_keys_between_gpus(tmp_path, world, tokens):
    if torch.cuda.device_count() < world:
        pytest.skip("one GPU here; two are needed to pass keys between them")
    for found in run_ranks(world, ranks_work.on_gpus, tmp_path, tokens, backend="nccl"):
        assert found["output"] <= 4e-3
        assert found["lse"] <= 1e-5
        assert found["repeats"] == 1
