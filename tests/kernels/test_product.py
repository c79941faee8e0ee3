"""w^T P, never storing P, equals the float64 product, however the work is cut."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention, attention_product, reference
from kernels.recompute import in_torch, tile_sizes
from kernels.recompute.proof import product_error
from tests.kernels.conftest import cases, make_tensors
from tests.kernels.test_recompute import ON_CPU, SHAPES, WAYS
from tests.numerics import assert_within_eager_error, score_floor

CUT = [
    Problem(1, 1, 150, 140, 16),
    Problem(1, 1, 150, 100, 16, causal=True),
    Problem(1, 1, 100, 150, 16, causal=True),
    Problem(1, 1, 5, 150, 16, causal=True),
]
"""More query tiles than one, for every size of tile, and causal masks that cross them."""


def some_weights(problem: Problem, device: str) -> dict[str, Tensor | None]:
    """w in every form, seen as [batch, heads, queries]: signed, in half precision, broadcast, and none."""
    full = (problem.batch, problem.heads, problem.queries)
    generator = torch.Generator().manual_seed(1)
    signed = torch.randn(full, generator=generator).to(device)
    return {
        "none": None,
        "ones": torch.ones(problem.queries, device=device).expand(full),
        "signed": signed,
        "half": signed.half(),
        "each query": signed[0, 0].expand(full),
        "each head": signed[:, :, :1].expand(full),
        "every second": signed.repeat_interleave(2, -1)[..., ::2],
    }


def rebuilt_in(q: Tensor, k: Tensor, lse: Tensor, scale: float, seen: Tensor) -> Tensor:
    """P as eager torch would have it from the lse: one matmul in q's dtype, then float32."""
    scores = (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
    return torch.where(seen, (scores.float() - lse.unsqueeze(-1)).exp(), 0.0)


def judge(
    part, problem: Problem, device: str, dtype: torch.dtype, scale: float, forms=("none", "signed")
) -> None:
    """Hold the product with these forms of w to twice eager's error."""
    q, k, _ = make_tensors(problem, device, dtype)
    scores = reference.scores(q, k, scale, problem.causal)
    truth = reference.probabilities(q, k, scale, problem.causal)
    lse = torch.logsumexp(scores, -1).float()
    eager = rebuilt_in(q, k, lse, scale, truth > 0)
    for name in forms:
        w = some_weights(problem, device)[name]
        weights = torch.ones(1, device=device) if w is None else w
        weights = weights.expand(q.shape[:3]).unsqueeze(-1).double()
        found = part.product(w, q, k, lse, scale, problem.causal)
        assert found.dtype == torch.float32
        assert_within_eager_error(
            found,
            (weights.float() * eager).sum(2),
            (weights * truth).sum(2),
            name,
            score_floor(scores, (weights.abs() * truth).sum(2)),
        )


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_product(way, problem, device, dtype):
    judge(import_module(way), problem, device, dtype, problem.head_dim**-0.5)


FORMS = ("ones", "half", "each query", "each head", "every second")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_every_form_of_w(way, device, dtype, form):
    judge(import_module(way), Problem(2, 2, 40, 50, 16), device, dtype, 0.25, [form])


@pytest.mark.parametrize("scale", [0.0, -0.3])
@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_any_scale(way, device, dtype, scale):
    judge(import_module(way), Problem(1, 2, 40, 50, 16, causal=True), device, dtype, scale)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 129, 257])
@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_no_attention_is_lost_at_the_tail(way, device, dtype, tokens):
    """Rows sum to 1, so what all keys receive sums to the sum of w: 257, where padded keys take none."""
    part = import_module(way)
    q, k, v = make_tensors(Problem(1, 1, tokens, tokens, 64), device, dtype)
    _, lse = attention(q, k, v)
    received = part.product(None, q, k, lse, 0.125, False).double()
    assert (received.sum(-1) - tokens).abs().max() <= 1e-3 * tokens
    w = torch.rand(1, 1, tokens, device=device)
    received = part.product(w, q, k, lse, 0.125, False).double()
    assert (received.sum(-1) - w.double().sum(-1)).abs().max() <= 1e-3 * tokens


@pytest.mark.parametrize("problem", CUT, ids=str)
@pytest.mark.parametrize(("_way", "device", "dtype"), cases(WAYS[1:]))
def test_shares_of_the_queries_change_only_the_rounding(problem, _way, device, dtype):
    from kernels.recompute import in_triton

    q, k, _ = make_tensors(problem, device, dtype)
    scores = reference.scores(q, k, 0.2, problem.causal)
    lse = torch.logsumexp(scores, -1).float()
    w = some_weights(problem, device)["signed"]
    assert w is not None
    rest = (w, q, k, lse, 0.2, problem.causal)
    whole = in_triton.product(*rest, splits=1)
    rounding = 1e-5 * in_triton.product(w.abs(), *rest[1:], splits=1).max()
    assert product_error(whole, *rest[:4], range(problem.keys), *rest[4:]) <= rounding + 1e-5
    for splits in (2, 1000):
        cut = in_triton.product(*rest, splits=splits)
        assert (cut - whole).abs().max() <= rounding
    assert torch.equal(cut, in_triton.product(*rest, splits=1000))


@pytest.mark.parametrize("way", ON_CPU)
@pytest.mark.parametrize("tokens", [63, 65])
def test_garbage_behind_the_end_changes_nothing(way, tokens):
    part = import_module(way)
    q, k, v = make_tensors(Problem(1, 2, tokens, tokens, 64), "cpu", torch.float32)
    _, lse = attention(q, k, v)
    w = torch.rand(1, 2, tokens)
    views = []
    for clean in (w, q, k, lse):
        buffer = torch.full((1, 2, tokens + 99, *clean.shape[3:]), torch.nan)
        views.append(buffer[:, :, :tokens].copy_(clean))
    clean = part.product(w, q, k, lse, 0.125, False)
    assert torch.equal(part.product(*views, 0.125, False), clean)


@pytest.mark.parametrize("way", ON_CPU)
def test_any_strides(way):
    """Tokens before heads, widths and vectors with gaps, and a log-sum-exp that lies across."""
    part = import_module(way)
    q, k, v = make_tensors(Problem(2, 2, 70, 90, 40), "cpu", torch.float32)
    _, lse = attention(q, k, v)
    w = torch.randn(2, 2, 70)
    clean = part.product(w, q, k, lse, 0.2, False)
    strange = (
        w.repeat_interleave(3, -1)[..., ::3],
        q.transpose(1, 2).contiguous().transpose(1, 2),
        k.repeat_interleave(2, -1)[..., ::2],
        lse.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    )
    assert torch.allclose(part.product(*strange, 0.2, False), clean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", ON_CPU)
def test_a_query_with_log_sum_exp_of_minus_infinity_gives_nothing(way):
    part = import_module(way)
    q, k, v = make_tensors(Problem(1, 1, 20, 20, 16), "cpu", torch.float32)
    _, lse = attention(q, k, v)
    dropped, w = lse.clone(), torch.rand(1, 1, 20)
    dropped[..., 3:7] = -torch.inf
    kept = w.clone()
    kept[..., 3:7] = 0
    expected = part.product(kept, q, k, lse, 0.25, False)
    assert torch.allclose(part.product(w, q, k, dropped, 0.25, False), expected, atol=1e-6)


@pytest.mark.parametrize("way", ON_CPU)
@pytest.mark.parametrize("shape", [(0, 2, 5, 5), (1, 0, 5, 5), (1, 2, 0, 5), (1, 2, 5, 0)])
def test_empty_problems(way, shape):
    batch, heads, queries, keys = shape
    q, k = torch.randn(batch, heads, queries, 8), torch.randn(batch, heads, keys, 8)
    lse = torch.zeros(batch, heads, queries)
    for w in (None, torch.ones(batch, heads, queries)):
        found = import_module(way).product(w, q, k, lse, 1.0, False)
        assert torch.equal(found, torch.zeros(batch, heads, keys))


def test_in_torch_joins_its_blocks():
    problem = Problem(1, 2, 2 * in_torch.QUERIES_AT_ONCE + 3, 40, 16, causal=True)
    judge(in_torch, problem, "cpu", torch.float32, 0.25)


# --- the public door --------------------------------------------------------------------------------

Q = torch.randn(1, 2, 5, 8)
LSE = torch.zeros(1, 2, 5)


@pytest.mark.parametrize(
    ("w", "error", "words"),
    [
        ([1.0] * 5, TypeError, "w must be a float32.* not list"),
        (torch.ones(5, dtype=torch.int64), TypeError, "w must be a float32.* not torch.int64"),
        (torch.ones(4), ValueError, r"w must be \[1, 2, 5\].* not \[4\]"),
        (torch.ones(3, 2, 5), ValueError, r"w must be \[1, 2, 5\]"),
        (torch.ones(1, 1, 2, 5), ValueError, r"w must be \[1, 2, 5\]"),
        (torch.ones(5, device="meta"), ValueError, "w is on meta but q is on cpu"),
    ],
)
def test_one_sentence_names_w(w, error, words):
    with pytest.raises(error, match=words) as raised:
        attention_product(w, Q, Q, LSE)
    assert "\n" not in str(raised.value)


def test_the_door_broadcasts_w():
    whole = attention_product(torch.ones(1, 2, 5), Q, Q, LSE)
    for w in (None, torch.ones(()), torch.ones(5), torch.ones(2, 1), torch.ones(1, 1, 1)):
        assert torch.allclose(attention_product(w, Q, Q, LSE), whole)


def test_a_gpu_is_filled(monkeypatch):
    """Few key tiles share out their queries, down to one query tile; many do not."""
    monkeypatch.setattr(tile_sizes, "multiprocessors", lambda device: 132)
    device = torch.device("cuda")
    assert tile_sizes.query_splits(device, 66, 22) == 4  # (1, 6, 1370, 64)
    assert tile_sizes.query_splits(device, 1032, 343) == 1  # (1, 6, 21905, 64)
    assert tile_sizes.query_splits(device, 1, 22) == 22


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1370, 21905])
def test_on_a_gpu_at_full_size(tokens):
    """Right on sampled keys, the same bits every time, and in linear memory."""
    q, k, v = make_tensors(Problem(1, 6, tokens, tokens, 64), "cuda", torch.bfloat16)
    _, lse = attention(q, k, v)
    w = torch.rand(tokens, device="cuda")
    attention_product(w, q, k, lse)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = attention_product(w, q, k, lse)
    assert torch.cuda.max_memory_allocated() - before <= 20 * found.nbytes
    keys = [0, 63, 64, 127, 128, tokens // 2, tokens - 1]
    assert product_error(found, w, q, k, lse, keys, 0.125) <= 1e-4 * found.max().item()
    assert all(torch.equal(attention_product(w, q, k, lse), found) for _ in range(20))
