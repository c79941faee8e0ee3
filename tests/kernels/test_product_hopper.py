"""The product made for Hopper equals the float64 product; without a GPU, it compiles and nothing spills."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import import_module

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention_product, recompute, reference
from kernels.compiled import SHARED_BYTES, Compiled, Request, compile_for
from kernels.hopper_reason import reason_against
from kernels.recompute import hopper
from tests.kernels.conftest import make_tensors
from tests.kernels.test_product import rebuilt_in, some_weights
from tests.numerics import assert_within_eager_error, score_floor

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
)
HALVES = (torch.float16, torch.bfloat16)
SHAPES = [
    Problem(1, 1, 1, 1, 64),
    Problem(2, 3, 63, 127, 64),
    Problem(2, 2, 64, 128, 64),
    Problem(1, 2, 65, 385, 64),
    Problem(1, 2, 1370, 1370, 64),
    Problem(2, 6, 257, 500, 64, kv_heads=2),
    Problem(1, 2, 300, 257, 40),
    Problem(1, 2, 257, 300, 96),
    Problem(2, 2, 129, 700, 128),
]
"""One query, full tiles, one more and one less on either side, shared heads, every width of a tile."""


@pytest.fixture(scope="module")
def product():
    """The launcher, on a GPU that it is made for."""
    small = Problem(1, 1, 64, 64, 64)
    reason = reason_against(small, torch.device("cuda"), "the product for Hopper")
    if reason:
        pytest.skip(reason)
    return import_module("kernels.recompute.products_hopper").product


def setting(problem: Problem, dtype: torch.dtype, spread: float = 1.0):
    """q, k, scale, true scores and P in float64, and the log-sum-exp."""
    q, k, _ = make_tensors(problem, "cuda", dtype)
    q, scale = q * spread, problem.head_dim**-0.5
    scores = reference.scores(q, k, scale)
    return q, k, scale, scores, torch.softmax(scores, -1), torch.logsumexp(scores, -1).float()


def judge(product, problem: Problem, dtype: torch.dtype, w: Tensor | None, spread=1.0) -> None:
    """Hold the product to twice the error that eager torch makes in the same dtype."""
    q, k, scale, scores, truth, lse = setting(problem, dtype, spread)
    weights = torch.ones_like(lse) if w is None else w.float()
    eager = rebuilt_in(q, k, lse, scale, truth > 0)
    assert_within_eager_error(
        product(w, q, k, lse, scale),
        torch.einsum("bhq,bhqk->bhk", weights, eager),
        torch.einsum("bhq,bhqk->bhk", weights.double(), truth),
        str(problem),
        score_floor(scores, torch.einsum("bhq,bhqk->bhk", weights.abs().double(), truth)),
    )


@pytest.mark.gpu
@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_every_shape(product, problem, dtype):
    judge(product, problem, dtype, None)
    judge(product, problem, dtype, some_weights(problem, "cuda")["signed"])


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["ones", "half", "each query", "each head", "every second"])
def test_weights_of_every_form(product, form):
    problem = Problem(2, 3, 150, 400, 64)
    judge(product, problem, torch.float16, some_weights(problem, "cuda")[form])


@pytest.mark.gpu
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_from_one_down_to_nothing(product, weighted):
    """Scores so far apart that most of P is far below what a float32 holds."""
    problem = Problem(1, 2, 700, 700, 64)
    w = some_weights(problem, "cuda")["signed"] if weighted else None
    judge(product, problem, torch.float16, w, spread=40.0)


@pytest.mark.gpu
def test_polynomials_stay_at_float32s_own_level(product):
    """Much closer than half precision asks: 1e-4 of what each key receives, of either sign of the scale."""
    q, k, scale, _, truth, lse = setting(Problem(1, 2, 3000, 1000, 64), torch.float16)
    received = truth.sum(2)
    assert ((product(None, q, k, lse, scale) - received).abs() / received).max() < 1e-4
    assert ((product(None, -q, k, lse, -scale) - received).abs() / received).max() < 1e-4


@pytest.mark.gpu
def test_the_same_bits_each_time_however_it_is_cut(product):
    """250 runs to the bit; shares of the queries change only the order of a sum."""
    q, k, scale, _, truth, lse = setting(Problem(1, 3, 1000, 1370, 64), torch.float16)
    first = product(None, q, k, lse, scale)
    assert all(torch.equal(product(None, q, k, lse, scale), first) for _ in range(250))
    for splits in (2, 5, 16, 1000):
        cut = product(None, q, k, lse, scale, splits)
        assert torch.equal(cut, product(None, q, k, lse, scale, splits))
        assert (cut - truth.sum(2)).abs().max() < 1e-4 * truth.sum(2).max()


@pytest.mark.gpu
def test_strides_and_neighbours(product):
    """Slices of one packed tensor, and NaN in the rows behind the end and in the next head."""
    packed = torch.randn(1, 500, 3, 4, 64, device="cuda", dtype=torch.float16)
    q, k, _ = packed.permute(2, 0, 3, 1, 4)
    lse = torch.logsumexp(reference.scores(q, k, 0.125), -1).float()
    clean = product(None, q.contiguous(), k.contiguous(), lse, 0.125)
    assert torch.equal(product(None, q, k, lse, 0.125), clean)
    packed[:, 450:], packed[:, :, :, 3] = torch.nan, torch.nan
    short = [t[:, :3, :450] for t in (q, k, lse)]
    lse_again = torch.logsumexp(reference.scores(short[0], short[1], 0.125), -1).float()
    found = product(None, short[0], short[1], lse_again, 0.125)
    assert found.isfinite().all()
    assert (found.double().sum(-1) - 450).abs().max() < 0.01


@pytest.mark.gpu
def test_nan_in_a_key_is_not_hidden(product):
    """A polynomial's saturation turns NaN into 0; each key has terms that go another way."""
    q, k, scale, _, _, lse = setting(Problem(1, 1, 128, 384, 64), torch.float16)
    for key in range(384):
        broken = k.clone()
        broken[0, 0, key, 0] = torch.nan
        found = product(None, q, broken, lse, scale)[0, 0].isnan()
        assert found[key]
        assert found.sum() == 1


@pytest.mark.gpu
def test_a_query_that_sees_nothing_gives_nothing(product):
    q, k, scale, _, truth, lse = setting(Problem(1, 2, 200, 300, 64), torch.float16)
    lse[:, :, ::2] = -torch.inf
    found = product(None, q, k, lse, scale)
    assert (found - truth[:, :, 1::2].sum(2)).abs().max() < 1e-3


@pytest.mark.gpu
def test_the_public_door_takes_it(product, monkeypatch):
    problem = Problem(1, 2, 700, 900, 64)
    q, k, scale, _, _, lse = setting(problem, torch.float16)
    monkeypatch.setattr(hopper, "FEWEST_SCORES", 1)
    assert torch.equal(attention_product(None, q, k, lse), product(None, q, k, lse, scale))


def test_what_it_takes_is_asked_without_a_gpu(monkeypatch):
    """Half precision, without a mask, wide enough a problem; on the CPU nothing."""
    monkeypatch.setattr(hopper, "reason_against", lambda problem, *rest: None)
    q = torch.empty(1, 6, 21905, 64, dtype=torch.float16)
    assert hopper.takes(q, q, causal=False)
    assert not hopper.takes(q, q, causal=True)
    assert not hopper.takes(q[:, :, :5477], q[:, :, :5477], causal=False)
    assert not hopper.takes(q[:, :, :257], q[:, :, :257], causal=False)
    assert hopper.takes(q.transpose(1, 2).contiguous().transpose(1, 2), q, causal=False)
    for unfit in (q.mT.contiguous().mT, q[..., 1:], q.flatten()[1:-63].view(1, 1, -1, 64)):
        assert not hopper.takes(unfit, q[..., : unfit.shape[-1]], causal=False)
    assert not hopper.takes(q, q[:, :1].expand(1, 6, 21905, 64), causal=False)
    monkeypatch.undo()
    assert not hopper.takes(q, q, causal=False)
    small = q[:, :, :64].float().normal_()
    lse = torch.logsumexp(reference.scores(small, small, 0.125), -1).float()
    received = recompute.product(None, small, small, lse, 0.125, causal=False)
    assert (received.sum(-1) - 64).abs().max() < 1e-3


@needs_triton
def test_the_polynomial_is_right_where_it_is_used():
    """What the constants in the assembly text say, over all of 1 to 2, in float64."""
    import struct

    from kernels.recompute.exponentials_hopper import TO_THE_FRACTION

    factors = [struct.unpack("!f", bytes.fromhex(f[2:]))[0] for f in TO_THE_FRACTION]
    m = torch.linspace(1, 2, 10_001, dtype=torch.float64)
    value = torch.zeros_like(m)
    for factor in factors:
        value = value * m + factor
    off = value / 2 ** (m - 1) - 1
    assert off.abs().max() < 7.6e-5
    assert abs(off.mean()) < 1e-5


@needs_triton
def test_the_polynomials_stand_in_different_columns():
    """So that a key's NaN passes through the exponential unit in one of a thread's two rows."""
    from kernels.recompute.exponentials_hopper import places_of
    from kernels.recompute.products_hopper import POLYNOMIALS

    places = [*places_of(POLYNOMIALS, 0), *places_of(POLYNOMIALS, 1)]  # pyright: ignore
    assert len(places) == len(set(places)) == POLYNOMIALS


@cache
def compiled(head_dim: int, what: str) -> Compiled:
    """The product as an H200 would run it."""
    request = Request("recompute", Problem(1, 6, 5477, 5477, head_dim), "sm_90", what)
    [answer] = compile_for([request])
    assert not isinstance(answer, str), answer
    return answer[-1]


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("what", ["product_hopper", "product_hopper_weighted"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_it_fits_and_nothing_spills(head_dim, what):
    kernel = compiled(head_dim, what)
    assert kernel.kernel == "product_hopper_kernel"
    assert not kernel.spills
    assert kernel.registers <= 128
    assert kernel.shared_bytes <= SHARED_BYTES["sm_90"]
    assert {"HGMMA", "UTMALDG", "MUFU"} <= set(kernel.instructions)


@needs_triton
@pytest.mark.slow
def test_the_exponential_unit_is_asked_for_the_rest():
    """Of 64 elements of a thread, in three warpgroups; the few other MUFU are a division of integers."""
    from kernels.recompute.products_hopper import POLYNOMIALS

    asked = 3 * 64 * (16 - POLYNOMIALS) // 16
    assert asked <= compiled(64, "product_hopper").instructions["MUFU"] < asked + 24
