"""FP8: the rotation keeps the scores, scales and layout read back, and the error is what e4m3 allows.

On the CPU the reference; on a GPU the kernels against it. What is compiled for Hopper is in
`test_fp8_compiled.py`.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.fp8 import attention_fp8, attention_of_quantized, quantize, reason
from kernels.fp8.quantized import (
    E4M3,
    HEAD_DIMS,
    KEY_LARGEST,
    KEY_ROWS,
    LARGEST,
    QUERY_LARGEST,
    QUERY_ROWS,
    key_order,
)
from kernels.fp8.reference import attention_of, quantize_in_torch, straight_exp2, values_of
from kernels.fp8.rotation import hadamard, signed_hadamard

HALF_STEP = 2.0**-4
"""e4m3 has three bits behind the point: rounding is off by at most a sixteenth of the number."""


def random_qkv(
    *shape: int, kv_heads: int | None = None, keys: int | None = None, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    batch, heads, queries, dim = shape
    of_keys = (batch, kv_heads or heads, keys or queries, dim)
    q, k, v = (
        torch.randn(s, generator=generator).to(device, torch.bfloat16)
        for s in (shape, of_keys, of_keys)
    )
    return q, k, v


def with_outliers(*shape: int) -> list[Tensor]:
    """N(0, 1) + N(0, 100) * Bernoulli(0.001): the input of Shah et al. 2024, section 4.3."""
    generator = torch.Generator().manual_seed(6)

    def one() -> Tensor:
        rare = torch.rand(shape, generator=generator) < 0.001
        plain, far = (torch.randn(shape, generator=generator) for _ in range(2))
        return (plain + 10 * far * rare).bfloat16()

    return [one() for _ in range(3)]


def exact(q, k, v, scale: float, causal: bool = False) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp in float64; a query that sees nothing has output 0."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q.double() @ k.transpose(-1, -2) * scale
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(~seen.tril(k.shape[2] - q.shape[2]), -math.inf)
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)


def rms(x: Tensor) -> float:
    return x.double().square().mean().sqrt().item()


# --- rotation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 64, 128, 256])
def test_hadamards_rows_are_orthogonal(size):
    matrix = hadamard(size)
    assert torch.equal(matrix @ matrix.T, size * torch.eye(size))


def test_no_hadamard_of_other_sizes():
    with pytest.raises(ValueError, match="power of two"):
        hadamard(96)


def test_rotation_keeps_every_score_exactly():
    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randint(-8, 9, (50, 128), generator=generator).float() for _ in range(2))
    rotation = signed_hadamard(128)
    assert not torch.equal(rotation.abs(), rotation)
    assert torch.equal((q @ rotation) @ (k @ rotation).T, 128 * (q @ k.T))


def test_rotation_spreads_an_outlier_evenly():
    row = torch.zeros(128)
    row[17] = 128.0
    assert torch.equal((row @ signed_hadamard(128)).abs(), torch.full((128,), 128.0))


# --- quantising --------------------------------------------------------------------------------------------


def test_key_order_names_each_of_sixteen_once_and_pairs_stay_together():
    order = key_order()
    assert sorted(order.tolist()) == list(range(16))
    # Place 4 q + i of the operand is column 2 q + i % 2 + 8 (i // 2) of the accumulator.
    assert order.tolist() == [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_values_read_back_within_half_a_step_of_their_scale(head_dim):
    q, k, v = random_qkv(1, 4, 150, head_dim, kv_heads=2, keys=300)
    held = quantize_in_torch(q, k, v, rotate=False, centre=False)
    for x, back, scale, rows in (
        (q, values_of(held)[0], held.q_scale, QUERY_ROWS),
        (k, values_of(held)[1], held.k_scale, KEY_ROWS),
    ):
        smallest = scale.repeat_interleave(rows, 1)[:, : x.shape[2], None].unflatten(0, x.shape[:2])
        assert ((x - back).abs() <= HALF_STEP * x.abs() + smallest * 2.0**-9).all()
    back = values_of(held)[2]
    smallest = held.v_scale.unflatten(0, v.shape[:2])[:, :, None]
    assert ((v - back).abs() <= HALF_STEP * v.abs() + smallest * 2.0**-9).all()


def test_the_largest_of_a_block_is_the_same_in_every_block():
    q, k, v = random_qkv(1, 2, 256, 64)
    held = quantize(q, k, v)
    assert (held.q.float().unflatten(1, (-1, QUERY_ROWS)).abs().amax((2, 3)) == QUERY_LARGEST).all()
    assert (held.k.float().unflatten(1, (-1, KEY_ROWS)).abs().amax((2, 3)) == KEY_LARGEST).all()
    assert (held.v.float().abs().amax(2) == LARGEST).all()


def test_padding_is_zero_and_a_block_of_zeros_has_no_nan():
    q, k, v = random_qkv(1, 1, 130, 64)
    k[:, :, :128] = 0
    v[..., 3] = 0
    held = quantize_in_torch(q, k, v, centre=False)
    assert held.q.shape == (1, 256, 64)
    assert held.v.shape == (1, 64, 256)
    for padding in (held.q[:, 130:], held.k[:, 130:], held.k[:, :128], held.v[:, 3]):
        assert not padding.float().any()
    assert all(x.float().isfinite().all() for x in (held.q, held.k, held.v, held.k_scale))


def test_the_centre_moves_no_weight_and_the_log_sum_exp_gets_it_back():
    q, k, v = random_qkv(1, 2, 200, 64)
    shared = (k + 20 * torch.randn(64, generator=torch.Generator().manual_seed(2))).bfloat16()
    truth, lse = exact(q, shared, v, 0.125)
    plain, centred = (
        attention_of(quantize_in_torch(q, shared, v, centre=centre), 0.125)
        for centre in (False, True)
    )
    assert rms(centred[0] - truth) < 0.2 * rms(plain[0] - truth)
    assert (centred[1] - lse).abs().max() < 0.1 * (plain[1] - lse).abs().max()


# --- attention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_reference_is_near_the_truth(rotate, centre, causal):
    q, k, v = random_qkv(1, 4, 150, 64, kv_heads=2, keys=300)
    output, lse = attention_of(quantize(q, k, v, rotate, centre), 0.125, causal)
    truth, true_lse = exact(q, k, v, 0.125, causal)
    assert rms(output - truth) < 0.06 * rms(truth)
    assert (lse - true_lse).abs().max() < 0.1


def test_bytes_are_the_exponentials_of_e4m3_but_for_a_straight_line():
    exponents = torch.linspace(-6, 8.75, 100_000)
    made = straight_exp2(exponents)
    assert (made.to(E4M3).float() == made).all()
    ratio = made / exponents.exp2()
    assert (ratio - 1).abs().max() < 0.11  # the line's 3.9 % and half a step, 6.25 %
    assert abs(ratio.mean().item() - 1) < 2e-3
    assert (straight_exp2(torch.tensor([-500.0, -8.0, 8.75, 20.0])).tolist()) == [0, 0, 448, 448]


def test_bytes_make_the_error_little_larger():
    q, k, v = random_qkv(1, 2, 64, 64, keys=3000)
    truth = exact(q, k, v, 0.125)[0]
    held = quantize(q, k, v)
    plain, straight = (
        rms(attention_of(held, 0.125, straight=straight)[0] - truth) for straight in (False, True)
    )
    assert plain < straight < 1.1 * plain


def test_rotation_helps_against_outliers():
    q, k, v = with_outliers(1, 2, 1500, 128)
    scale = 128**-0.5
    truth = exact(q, k, v, scale)[0]
    plain, rotated = (
        rms(attention_of(quantize(q, k, v, rotate, centre=False), scale)[0] - truth)
        for rotate in (False, True)
    )
    assert rotated < 0.75 * plain


def test_a_query_that_sees_nothing():
    q, k, v = random_qkv(1, 1, 20, 64, keys=5)
    output, lse = attention_of(quantize(q, k, v), 0.125, causal=True)
    assert not output[:, :, :15].any()
    assert (lse[:, :, :15] == -math.inf).all()
    assert lse[:, :, 15:].isfinite().all()


# --- refusals ----------------------------------------------------------------------------------------------


def test_refusals_are_one_sentence():
    q, k, v = random_qkv(1, 1, 16, 64)
    with pytest.raises(TypeError, match="float16 or bfloat16"):
        attention_fp8(q.float(), k.float(), v.float())
    with pytest.raises(ValueError, match="head_dim 64, 128 or 256, not 32"):
        attention_fp8(q[..., :32], k[..., :32], v[..., :32])
    with pytest.raises(ValueError, match="k's shape"):
        attention_fp8(q, k, v[:, :, :8])
    with pytest.raises(RuntimeError, match=r"^attention_fp8 needs a Hopper GPU.*not cpu\.$"):
        attention_fp8(q, k, v)
    assert reason(torch.device("cpu"))


# --- on a GPU ----------------------------------------------------------------------------------------------


@pytest.fixture
def hopper() -> str:
    why_not = reason(torch.device("cuda"))
    if why_not:
        pytest.skip(why_not)
    return "cuda"


def guarded(x: Tensor) -> Tensor:
    """The same values inside of a larger tensor of NaN: what is read next to them shows."""
    batch, heads, tokens, dim = x.shape
    around = torch.full(
        (batch, tokens + 3, heads + 1, dim), math.nan, dtype=x.dtype, device=x.device
    )
    inside = around[:, 1 : tokens + 1, :heads].transpose(1, 2)
    inside.copy_(x)
    return inside


@pytest.mark.gpu
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("keys", [300, 4500])
def test_kernels_quantise_as_the_reference(hopper, keys, head_dim, rotate, centre):
    q, k, v = random_qkv(2, 4, 197, head_dim, kv_heads=2, keys=keys, device=hopper)
    made = quantize(guarded(q), guarded(k), guarded(v), rotate, centre)
    wanted = quantize_in_torch(q, k, v, rotate, centre)
    for name in ("q_scale", "k_scale", "v_scale", "q_offset", "v_centre"):
        torch.testing.assert_close(getattr(made, name), getattr(wanted, name), rtol=1e-4, atol=1e-4)
    for name in ("q", "k", "v"):
        one, other = getattr(made, name).float(), getattr(wanted, name).float()
        # The sums' order may turn a tie: a step in a few places, never more.
        assert (one != other).float().mean() < 0.02, name
        assert ((one - other).abs() <= 2 * HALF_STEP * other.abs() + 2.0**-9).all(), name


GPU_TOKENS = [
    (1, 1),
    (1, 2),
    (1, 300),
    (17, 17),
    (64, 128),
    (129, 127),
    (197, 197),
    (1025, 1025),
    (300, 50),
]


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize(("queries", "keys"), GPU_TOKENS)
def test_kernel_agrees_with_the_reference(hopper, queries, keys, head_dim, causal):
    q, k, v = random_qkv(2, 4, queries, head_dim, kv_heads=2, keys=keys, device=hopper)
    scale = head_dim**-0.5
    output, lse = attention_fp8(guarded(q), guarded(k), guarded(v), causal=causal)
    wanted, wanted_lse = attention_of(quantize(q, k, v), scale, causal)
    assert output.dtype == q.dtype
    assert output.shape == q.shape
    # Exponentials are off by up to 3.9 %, but right in the mean; of the last tile they are exact.
    torch.testing.assert_close(lse, wanted_lse, rtol=1e-4, atol=0.045)
    # P is rounded against the maximum so far, in the reference against the last one: e4m3's 2.6 % twice.
    assert rms(output - wanted) < 0.06 * rms(wanted)
    assert rms(output - exact(q, k, v, scale, causal)[0]) < 0.09 * rms(wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [64, 128])
def test_exact_takes_exponentials(hopper, head_dim):
    q, k, v = random_qkv(1, 2, 1025, head_dim, device=hopper)
    scale = head_dim**-0.5
    held = quantize(q, k, v)
    straight, _ = attention_of_quantized(held, scale)
    output, lse = attention_of_quantized(held, scale, exact=True)
    torch.testing.assert_close(lse, attention_of(held, scale)[1], rtol=1e-4, atol=2e-3)
    truth, _ = exact(q, k, v, scale)
    assert rms(output - truth) < rms(straight - truth) < 1.2 * rms(output - truth)


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [-0.2, 0.0, 0.3])
def test_any_scale(hopper, scale):
    q, k, v = random_qkv(1, 2, 200, 64, device=hopper)
    k[:, :, 128:] = 0  # a block without any number, and part of it hidden
    output, lse = attention_fp8(q, k, v, scale=scale, centre=False)
    truth, true_lse = exact(q, k, v, scale)
    # The scores' error grows with their size: at 0.3 the largest are near 10, and e4m3 is off by up to 6 %.
    assert rms(output - truth) < 0.12 * rms(truth)
    assert (lse - true_lse).abs().max() < abs(scale) + 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_many_keys_of_one_sign_are_right_within_half_a_percent(hopper, head_dim):
    """V of one sign: 3.3e-3 too large with a centre of 256 keys (H200, commit 8ba173c).

    It fits truncated sums of 14 bits, not promoted by tile: `test_fp8_quantise` sums so. The cause was not measured.
    """
    q, k, v = random_qkv(1, 1, 256, head_dim, keys=65536, device=hopper)
    v = v.abs() + 1
    output = attention_fp8(q, k, v)[0].double()
    truth = exact(q, k, v, head_dim**-0.5)[0]
    assert abs((output.mean() / truth.mean()).item() - 1) < 5e-3


@pytest.mark.gpu
def test_the_same_every_time(hopper):
    q, k, v = random_qkv(2, 8, 1370, 64, device=hopper)
    first = attention_fp8(q, k, v)
    for _ in range(50):
        again = attention_fp8(q, k, v)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
