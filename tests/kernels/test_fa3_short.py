"""fa3 for short sequences: both of its kernels are right, wherever they run, and which of them is launched."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
import torch

from kernels import reference
from kernels.compiled import SHARED_BYTES, Request, compile_for
from kernels.fa3 import short
from kernels.fa3.short import MOST_KEYS, parts_of, pieces_for, takes
from kernels.problem import PROBLEMS, Problem
from kernels.registry import load
from tests.kernels.conftest import make_tensors
from tests.numerics import assert_within_eager_error, score_floor

SHORT = [
    p
    for p in PROBLEMS
    if takes(dataclasses.replace(p, dtype="float16")) and p.queries <= 300
] + [
    Problem(1, 1, 300, 16, 64),
    Problem(1, 2, 17, 272, 64),
    Problem(1, 1, 33, 259, 48, causal=True),
    Problem(1, 3, 130, 130, 64, causal=True),
]  # fmt: skip
HALF = [torch.float16, torch.bfloat16]


def check(launch, problem: Problem, device: str, dtype: torch.dtype, scale: float) -> None:
    """Output and log-sum-exp of one launch, bounded by eager's error."""
    q, k, v = make_tensors(problem, device, dtype)
    output, lse = launch(q, k, v, scale, problem.causal)
    eager_output, eager_lse = load("eager").forward(q, k, v, scale, problem.causal)
    true_output, true_lse = reference.attention(q, k, v, scale, problem.causal)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert (output.shape, lse.shape) == (true_output.shape, true_lse.shape)
    assert_within_eager_error(
        output, eager_output, true_output, "output", score_floor(true_lse, true_output)
    )
    largest = true_lse[true_lse.isfinite()].abs().max().item()
    rounding = 2 * torch.finfo(torch.float32).eps * (1 + largest)
    assert_within_eager_error(lse, eager_lse, true_lse, "log-sum-exp", rounding)


@pytest.mark.interpreter
@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SHORT, ids=str)
def test_tiles_in_the_interpreter(problem):
    check(short.launch_few, problem, "cpu", torch.float16, problem.head_dim**-0.5)


@pytest.mark.interpreter
@pytest.mark.parametrize("scale", [0.0, -0.4, 3.0])
@pytest.mark.parametrize("causal", [False, True])
def test_any_scale_in_the_interpreter(scale, causal):
    check(short.launch_few, Problem(1, 2, 65, 97, 32, causal=causal), "cpu", torch.float16, scale)


@pytest.mark.gpu
@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("launch", [short.launch_few, short.launch_many])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("problem", SHORT, ids=str)
def test_both_kernels(launch, problem, dtype):
    require_hopper()
    check(launch, problem, "cuda", dtype, problem.head_dim**-0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("launch", [short.launch_few, short.launch_many])
@pytest.mark.parametrize("scale", [0.0, -0.4, 3.0])
@pytest.mark.parametrize("causal", [False, True])
def test_any_scale(launch, scale, causal):
    require_hopper()
    check(launch, Problem(2, 6, 197, 197, 64, causal=causal), "cuda", torch.float16, scale)


@pytest.mark.gpu
@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("head_dim", [72, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_wide_heads(head_dim, causal):
    require_hopper()
    problem = Problem(9, 4, 197, 200, head_dim, "bfloat16", causal, kv_heads=2)
    assert takes(problem)
    check(short.launch_short, problem, "cuda", torch.bfloat16, head_dim**-0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("launch", [short.launch_few, short.launch_many])
def test_another_head_is_never_read(launch):
    """q, k and v are slices of one packed tensor, and all other heads hold NaN."""
    require_hopper()
    for heads in (1, 40, 200):
        packed = torch.full((2, 197, 3, heads + 1, 64), torch.nan, device="cuda").half()
        packed[:, :, :, :heads] = torch.randn(2, 197, 3, heads, 64, device="cuda").half()
        q, k, v = packed.unbind(2)
        q, k, v = (t[:, :, :heads].transpose(1, 2) for t in (q, k, v))
        output, _ = launch(q, k, v, 0.125, False)
        truth, _ = reference.attention(q, k, v, 0.125, False)
        assert (output.double() - truth).abs().max() < 2e-3


@pytest.mark.gpu
@pytest.mark.parametrize("launch", [short.launch_few, short.launch_many])
def test_the_same_bits_every_time_and_exact_where_arithmetic_is(launch):
    """Q = 0 weighs 256 keys alike: small integers in V have an exact mean."""
    require_hopper()
    generator = torch.Generator("cuda").manual_seed(0)
    q = torch.zeros(8, 40, 197, 64, device="cuda", dtype=torch.bfloat16)
    v = torch.randint(-4, 5, (8, 40, 256, 64), device="cuda", generator=generator).bfloat16()
    k = torch.randn(v.shape, device="cuda", generator=generator).bfloat16()
    mean = v.float().mean(2, keepdim=True).bfloat16().expand(q.shape)
    q1, k1 = (torch.randn(t.shape, device="cuda", generator=generator).bfloat16() for t in (q, k))
    first = launch(q1, k1, v, 0.125, False)
    for _ in range(250):
        assert torch.equal(launch(q, k, v, 0.125, False)[0], mean)
        again = launch(q1, k1, v, 0.125, False)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def require_hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("Gluon's kernels are written for compute capability 9.0")


# --- what the compiler makes of it ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_hopper_has_room_for_it():
    """No registers in memory, and nothing that writes to what a product in flight still reads."""
    requests = [
        Request("fa3", Problem(batch, 12, keys, keys, width, dtype, causal))
        for batch, keys, width, dtype in [
            (1, 197, 64, "bfloat16"),
            (1, 257, 40, "float16"),
            (64, 197, 64, "bfloat16"),
            (64, 197, 128, "float16"),
            (64, 257, 64, "float16"),
        ]
        for causal in (False, True)
    ]
    for request, found in zip(requests, compile_for(requests), strict=True):
        assert not isinstance(found, str), f"{request}: {found}"
        (kernel,) = found
        many = request.problem.batch == 64
        assert kernel.kernel == ("stream_kernel" if many else "short_kernel")
        assert not kernel.spills, f"{request}: {kernel.stack_bytes} bytes"
        assert kernel.shared_bytes <= SHARED_BYTES["sm_90"], request
        assert kernel.instructions["HGMMA"] > 0
        assert not kernel.written_in_flight, f"{request}: {kernel.written_in_flight[:3]}"


# --- what is launched ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", range(1, MOST_KEYS + 1))
def test_only_the_last_piece_reaches_past_the_keys(keys):
    pieces = pieces_for(keys)
    assert sum(pieces[:-1]) < keys <= sum(pieces)
    assert all(piece & (piece - 1) == 0 and piece >= 16 for piece in pieces)


def test_too_many_keys_are_refused():
    with pytest.raises(ValueError, match="273 keys"):
        pieces_for(MOST_KEYS + 1)


def test_what_it_takes():
    asked = Problem(1, 12, 197, 197, 64, "bfloat16")
    assert takes(asked)
    assert takes(dataclasses.replace(asked, batch=64, head_dim=128))
    for change in (
        {"keys": MOST_KEYS + 1},
        {"keys": 0},
        {"dtype": "float32"},
        {"head_dim": 60},
        {"head_dim": 128},  # for so few heads
        {"batch": 64, "head_dim": 128, "keys": 209},
        {"batch": 64, "head_dim": 136},
    ):
        assert not takes(dataclasses.replace(asked, **change)), change


@pytest.mark.parametrize(
    ("heads", "tiles", "parts"),
    [(768, 4, 1), (192, 4, 2), (96, 4, 4), (384, 5, 1), (12, 4, 4), (768, 40, 8)],
)
def test_heads_are_cut_where_programs_would_end_apart(heads, tiles, parts):
    assert parts_of(heads, tiles, 132) == parts
