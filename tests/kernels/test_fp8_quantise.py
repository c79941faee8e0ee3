"""FP8 without a GPU: what the quantise kernels leave unwritten, and why the centre is the mean of all keys."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from kernels.fp8 import HALF, attention_of_quantized, quantize, reason
from kernels.fp8.quantized import CENTRE_KEYS, E4M3, HEAD_DIMS, Quantized, centre_of, key_step
from kernels.fp8.reference import P_DOUBLINGS, attention_of, quantize_in_torch, values_of

SHORT_BITS = 13
"""Behind the point of the largest term: sums of 14 bits, which fit what an H200 gave for FP8 products."""

TOKENS = [1, 17, 127, 129, 300]

KEYS_AT_ONCE = 32
"""Of one wgmma in FP8."""


def random_qkv(queries: int, keys: int, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    sizes = (1, 1, queries, head_dim), (1, 1, keys, head_dim), (1, 1, keys, head_dim)
    q, k, v = (torch.randn(size, generator=generator).half() for size in sizes)
    return q, k, v


def tensors_of(held: Quantized) -> dict[str, Tensor]:
    found = {field.name: getattr(held, field.name) for field in fields(held)}
    return {name: x.float() for name, x in found.items() if isinstance(x, Tensor)}


def poison(monkeypatch, name: str, dtypes: tuple[torch.dtype, ...]) -> None:
    """What torch's `name` allocates in these dtypes holds NaN until it is written."""
    make = getattr(torch, name)

    def made(*size, **options) -> Tensor:
        x = make(*size, **options)
        if x.dtype == E4M3 and E4M3 in dtypes:
            x.view(torch.uint8).fill_(0x7F)
        elif x.dtype in dtypes:
            x.fill_(math.nan)
        return x

    monkeypatch.setattr(torch, name, made)


def poison_all(monkeypatch) -> None:
    for name in ("empty", "empty_like"):
        poison(monkeypatch, name, (E4M3, *HALF, torch.float32))
    poison(monkeypatch, "zeros", (E4M3,))  # in float32 zeros are where the largest is sought


@pytest.mark.interpreter
@pytest.mark.parametrize("tokens", TOKENS)
def test_the_kernels_write_all_that_the_next_one_can_read(monkeypatch, tokens):
    """To the last padded row; tiles end there, and TMA brings zeros from behind the last head."""
    from kernels.fp8.to_e4m3 import quantize_on_gpu

    q, k, v = random_qkv(tokens, tokens, 64)
    wanted = tensors_of(quantize_in_torch(q, k, v))
    poison_all(monkeypatch)
    made = tensors_of(quantize_on_gpu(q, k, v, rotate=True, centre=True, negate=False))
    assert made.keys() == wanted.keys()
    for name, x in made.items():
        assert x.isfinite().all(), name
        # Triton's interpreter loses the carry when it rounds up to a power of two: 127.9 becomes 64.
        right = (x - wanted[name]).abs() <= wanted[name].abs() / 8 + 2.0**-6
        assert right.float().mean() > 0.95, name


@pytest.mark.interpreter
def test_the_survey_takes_the_mean_of_every_other_key_of_many_and_of_all_values():
    from kernels.fp8.survey import survey

    _, k, v = random_qkv(1, 2 * CENTRE_KEYS + 5, 64)
    assert key_step(k.shape[2]) == 2
    of_keys, of_values, reach = survey(k, v, 2, centre=True, rotation=None)
    torch.testing.assert_close(of_keys[0], k[0, 0, ::2].float().mean(0), rtol=0, atol=1e-6)
    torch.testing.assert_close(of_values[0], v[0, 0].float().mean(0), rtol=0, atol=1e-6)
    furthest = (v[0, 0].float() - of_values).abs().amax(0)
    torch.testing.assert_close(reach[0], furthest, rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("tokens", TOKENS)
def test_no_nan_on_a_gpu_and_where_it_begins(monkeypatch, tokens, head_dim):
    """One key gave NaN at times, while its number was compiled in: `test_fp8_compiled` says why."""
    why_not = reason(torch.device("cuda"))
    if why_not:
        pytest.skip(why_not)
    q, k, v = (x.cuda() for x in random_qkv(tokens, tokens, head_dim))
    poison_all(monkeypatch)
    held = quantize(q, k, v)
    for name, x in tensors_of(held).items():
        assert x.isfinite().all(), name
    output, log_sum_exp = attention_of_quantized(held, head_dim**-0.5)
    assert log_sum_exp.isfinite().all()
    assert output.isfinite().all()


def test_the_centre_is_the_mean_of_all_keys():
    _, k, v = random_qkv(1, 8192, 64)
    for x in (k, v):
        assert (centre_of(x) - x.double().mean(2, keepdim=True)).abs().max() < 1e-6


# --- why ---------------------------------------------------------------------------------------------------


def short_sums(weights: Tensor, values: Tensor) -> Tensor:
    """weights @ values, where each step cuts every term, and the sum so far, to SHORT_BITS behind the largest."""
    total = torch.zeros(weights.shape[0], 1, values.shape[1])
    for some in range(0, weights.shape[1], KEYS_AT_ONCE):
        place = slice(some, some + KEYS_AT_ONCE)
        terms = torch.cat([total, weights[:, place, None] * values[place]], 1)
        exponent = torch.frexp(terms.abs().amax(1, keepdim=True)).exponent - 1
        step = torch.exp2((exponent - SHORT_BITS).float())
        total = ((terms / step).trunc() * step).sum(1, keepdim=True)
    return total[:, 0]


def with_short_sums(held: Quantized, scale: float) -> Tensor:
    """`attention_of` of one head, its second product summed as on Hopper."""
    q, k, v = values_of(held)
    scores = (q @ k.mT)[0, 0] * (scale * math.log2(math.e))
    weights = torch.exp2(scores - scores.amax(1, keepdim=True) + P_DOUBLINGS)
    sums = short_sums(weights.to(E4M3).float(), v[0, 0] / held.v_scale) * held.v_scale
    return sums / weights.sum(1, keepdim=True) + held.v_centre


def test_short_sums_of_many_keys_stay_right_with_the_centre():
    """With a centre of 256 keys the error was 1.6 times as large here, and at 16,384 keys on a GPU 0.12."""
    scale = 64**-0.5
    q, k, v = random_qkv(16, 8192, 64)
    truth = ((q.double() @ k.double().mT * scale).softmax(-1) @ v.double())[0, 0]

    def error(output: Tensor) -> float:
        return ((output - truth).norm() / truth.norm()).item()

    plain, centred = (quantize(q, k, v, centre=centre) for centre in (False, True))
    allowed = 1.1 * error(attention_of(plain, scale)[0][0, 0])
    assert allowed < 0.06
    assert error(attention_of(centred, scale)[0][0, 0]) <= allowed
    assert error(with_short_sums(centred, scale)) <= allowed
