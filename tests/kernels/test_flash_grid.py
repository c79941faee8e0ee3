"""The case grid of the FlashAttention project's own tests: its lengths, widths, shared heads and masks.

Inputs lie there as [batch, tokens, heads, width], and so they do here.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention, reference
from kernels.registry import load
from tests.kernels.conftest import ON_GPU, OURS, WITH_BACKWARD, require
from tests.kernels.test_backward import check as check_gradients
from tests.numerics import assert_within_eager_error, score_floor

WIDTHS = (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
LENGTHS = (
    (113, 203), (128, 217), (113, 211), (108, 256), (256, 512),
    (512, 256), (1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048),
)  # fmt: skip
KV_HEADS = {"mha": 6, "mqa": 1, "gqa": 2}
HEADS, BATCH = 6, 2


def token_major(batch: int, heads: int, tokens: int, width: int, like: Tensor) -> Tensor:
    """Unit-normal [batch, heads, tokens, width], laid out [batch, tokens, heads, width]."""
    values = torch.randn(batch, tokens, heads, width, dtype=torch.float32, device=like.device)
    return values.to(like.dtype).transpose(1, 2)


def check(name: str, batch: int, heads: tuple[int, int], lengths, width: int, causal: bool, like):
    """Output, log-sum-exp and gradients of one case; a failure names its lengths."""
    torch.manual_seed(0)
    (heads, kv_heads), (queries, keys), scale = heads, lengths, width**-0.5
    q, outer = (token_major(batch, heads, queries, width, like) for _ in "qo")
    k, v = (token_major(batch, kv_heads, keys, width, like) for _ in "kv")
    output, lse = attention(q, k, v, causal=causal, implementation=name)
    eager_output, eager_lse = load("eager").forward(q, k, v, scale, causal)
    true_output, true_lse = reference.attention(q, k, v, scale, causal)
    try:
        floor = score_floor(true_lse, true_output)
        assert_within_eager_error(output, eager_output, true_output, "output", floor)
        assert_within_eager_error(lse, eager_lse, true_lse, "log-sum-exp")
        if name in WITH_BACKWARD:
            check_gradients(name, (q, k, v), scale, causal, outer, None)
    except AssertionError as fault:
        raise AssertionError(f"{queries} queries, {keys} keys: {fault}") from fault


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kind", KV_HEADS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in ON_GPU if name != "fa1"])
@pytest.mark.parametrize("width", WIDTHS, ids="d{}".format)
def test_all_of_it(name, width, dtype, kind, causal):
    require(Problem(BATCH, HEADS, 1024, 1024, width), name, "cuda", dtype)
    like = torch.empty(0, dtype=dtype, device="cuda")
    for lengths in LENGTHS:
        check(name, BATCH, (HEADS, KV_HEADS[kind]), lengths, width, causal, like)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kind", KV_HEADS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("width", [32, 59, 64, 128, 256], ids="d{}".format)
def test_a_part_of_it_for_fa1(width, dtype, kind, causal):
    """One program a head takes its time, by design."""
    like = torch.empty(0, dtype=dtype, device="cuda")
    for lengths in (LENGTHS[0], LENGTHS[3], LENGTHS[5], LENGTHS[7]):
        check("fa1", BATCH, (HEADS, KV_HEADS[kind]), lengths, width, causal, like)


@pytest.mark.interpreter
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "kv_heads", "causal"),
    [(torch.float32, 1, True), (torch.float16, 2, False)],
    ids=["float32-gqa-causal", "float16-mha-full"],
)
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("width", [32, 59, 128], ids="d{}".format)
def test_a_part_of_it_in_the_interpreter(name, width, dtype, kv_heads, causal):
    """One batch of two heads, and one pair of lengths for each width."""
    lengths = {32: LENGTHS[0], 59: LENGTHS[2], 128: LENGTHS[3]}[width]
    check(name, 1, (2, kv_heads), lengths, width, causal, like=torch.empty(0, dtype=dtype))
