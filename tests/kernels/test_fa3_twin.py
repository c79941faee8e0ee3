"""The plain Triton twin of fa3: right on every shape, in fa3's order, with and without the rescaling it may skip."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from kernels import reference
from kernels.fa3.stand_in import STAND_IN
from kernels.problem import PROBLEMS, Problem
from kernels.registry import load
from kernels.tile_sizes import Tiles, with_tiles
from tests.kernels.conftest import make_tensors
from tests.numerics import assert_within_eager_error, score_floor

pytestmark = pytest.mark.interpreter
SMALL = [problem for problem in PROBLEMS if problem.queries <= 300]
FEW_KEYS = Tiles(32, 16, 4, 1)
"""So small that there are many tiles of keys, to rescale between."""


def run(problem: Problem, tensors: Iterable[Tensor], scale: float, most_rise: float = 0.0):
    from kernels.fa3.twin import launch_forward

    q, k, v = tensors
    return launch_forward(q, k, v, scale, problem.causal, most_rise=most_rise)


def check(problem: Problem, dtype: torch.dtype, scale: float, most_rise: float = 0.0) -> None:
    """Output and log-sum-exp, bounded by eager's error."""
    q, k, v = make_tensors(problem, "cpu", dtype)
    output, lse = run(problem, (q, k, v), scale, most_rise)
    eager_output, eager_lse = load("eager").forward(q, k, v, scale, problem.causal)
    true_output, true_lse = reference.attention(q, k, v, scale, problem.causal)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert_within_eager_error(
        output, eager_output, true_output, "output", score_floor(true_lse, true_output)
    )
    largest = true_lse[true_lse.isfinite()].abs().max().item()
    rounding = 2 * torch.finfo(torch.float32).eps * (1 + largest)
    assert_within_eager_error(lse, eager_lse, true_lse, "log-sum-exp", rounding)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SMALL, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_output_and_log_sum_exp(problem, dtype):
    check(problem, dtype, problem.head_dim**-0.5)


@pytest.mark.parametrize("scale", [0.0, -0.4, 3.0])
@pytest.mark.parametrize("causal", [False, True])
def test_any_scale(scale, causal):
    check(Problem(1, 2, 65, 97, 32, causal=causal), torch.float32, scale)


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 63, 64, 65, 100])
@pytest.mark.parametrize("causal", [False, True])
def test_whatever_the_last_tile_holds(tokens, causal):
    """A tail of one key, a full one, and none."""
    with with_tiles(Tiles(16, 16, 4, 1)):
        check(Problem(1, 1, tokens, tokens, 16, causal=causal), torch.float32, 0.25)


def test_rows_of_a_tile_need_be_no_power_of_two():
    """192 queries a program, as three groups of warps have them."""
    with with_tiles(Tiles(48, 16, 4, 1)):
        check(Problem(1, 2, 100, 70, 16), torch.float32, 0.25)
        check(Problem(1, 2, 100, 100, 16, causal=True), torch.float32, 0.25)


def test_rows_that_may_see_nothing():
    """Causal with five queries and two keys: the first three see nothing."""
    problem = Problem(1, 1, 5, 2, 16, causal=True)
    q, k, v = make_tensors(problem, "cpu", torch.float32)
    for most_rise in (0.0, 8.0):
        output, lse = run(problem, (q, k, v), 0.25, most_rise)
        assert not output[:, :, :3].any()
        assert lse[:, :, :3].eq(-torch.inf).all()
        assert torch.equal(output[:, :, 3], v[:, :, 0])


def test_nothing_leaks_from_behind_the_end():
    problem = Problem(1, 2, 65, 65, 40)
    plain = make_tensors(problem, "cpu", torch.float32)
    whole = [torch.full((1, 3, 140, 48), torch.nan) for _ in "qkv"]
    views = [t[:, :2, :65, :40] for t in whole]
    for view, values in zip(views, plain, strict=True):
        view.copy_(values)
    for found, expected in zip(run(problem, views, 0.2), run(problem, plain, 0.2), strict=True):
        assert found.equal(expected)


# --- in fa3's own pieces --------------------------------------------------------------------------------------

PIECES = (
    # (problem, multiprocessors): each of the three orders; split along the keys where few tiles are left
    (
        Problem(1, 2, 300, 300, 16),
        5,
    ),  # 4 tiles on 5: too many are left, so blocks of queries in shares
    (Problem(1, 2, 300, 700, 16), 9),  # 4 tiles on 9: split
    (Problem(1, 1, 700, 700, 16), 3),  # a whole wave, and one tile that is split
    (Problem(2, 4, 100, 400, 64, kv_heads=2), 16),
    (Problem(1, 2, 140, 300, 128), 7),  # two blocks a tile, rescaled seldom
    (Problem(1, 2, 300, 300, 16, causal=True), 3),
    (Problem(1, 2, 70, 30, 64, causal=True), 3),
)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize(("problem", "programs"), PIECES, ids=str)
def test_every_order_of_pieces_gives_the_same_output(problem, programs):
    """The schedule is the Gluon kernel's, and so is the merge: they are tried here without a GPU.

    What nobody has written holds NaN, and the merge reads some of it, in rows behind the last query.
    """
    from kernels.fa3.twin_launch import launch_pieces

    q, k, v = make_tensors(problem, "cpu", torch.float32)
    scale = problem.head_dim**-0.5
    output, lse = launch_pieces(q, k, v, scale, problem.causal, programs)
    true_output, true_lse = reference.attention(q, k, v, scale, problem.causal)
    torch.testing.assert_close(output.double(), true_output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), true_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 100, 700])
def test_few_keys_of_many_heads_stream_past(queries, causal):
    from kernels.fa3.twin_launch import launch_stream

    problem = Problem(2, 3, queries, 70, 32, causal=causal)
    q, k, v = make_tensors(problem, "cpu", torch.float16)
    output, lse = launch_stream(q, k, v, 0.2, causal, 4)
    true_output, true_lse = reference.attention(q, k, v, 0.2, causal)
    torch.testing.assert_close(output.double(), true_output, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(lse.double(), true_lse, rtol=1e-5, atol=1e-5)


def test_tiles_of_ones_own_are_cut_no_further(monkeypatch):
    """With them a walk is one of the programs that run."""
    problem = Problem(1, 1, 100, 100, 16)
    q, k, v = make_tensors(problem, "cpu", torch.float32)
    ours = STAND_IN.forward(q, k, v, 0.25, False)
    monkeypatch.setattr("kernels.fa3.twin_launch.launch_twin", None)
    with with_tiles(FEW_KEYS):
        plain = STAND_IN.forward(q, k, v, 0.25, False)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


# --- the rescaling that may be skipped --------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_skipping_the_rescaling_changes_nothing_but_the_rounding(causal, dtype):
    with with_tiles(FEW_KEYS):
        check(Problem(1, 2, 97, 97, 32, causal=causal), dtype, 0.4, most_rise=8.0)


def test_the_maximum_stays_while_weights_stay_small():
    """Each tile's scores are 1 above those of the tile before, and a quarter of a tile's row is 4 weights.

    So the 7th tile after a maximum is the first with 2^9 in a quarter, which is above 2^8.5.
    """
    from kernels.fa3.twin import launch_forward

    tokens, block = 256, 16
    rise = torch.arange(tokens).flip(0).div(block, rounding_mode="floor") * 0.6931471805599453
    q, k, v = torch.zeros(16, 16), torch.zeros(tokens, 16), torch.randn(tokens, 16)
    q[:, 0], k[:, 0] = 1.0, rise  # the walk begins at the end, where scores are lowest
    maxima = {}
    for most_rise in (0.0, 8.5):
        pages = torch.zeros(tokens // block, 16, block + 16 + 3)
        with with_tiles(Tiles(16, block, 4, 1)):
            output, _ = launch_forward(
                q[None, None], k[None, None], v[None, None], 1.0, False,
                trace=(pages, pages.shape[2], 0), most_rise=most_rise,
            )  # fmt: skip
        maxima[most_rise] = pages[:, 0, -3].round().int().tolist()
        expected = (q.double() @ k.double().T).softmax(1) @ v.double()
        torch.testing.assert_close(output[0, 0].double(), expected, rtol=1e-5, atol=1e-5)
    assert maxima[0.0] == list(range(16))
    assert maxima[8.5] == [0] * 7 + [7] * 7 + [14] * 2


# --- who may use it ---------------------------------------------------------------------------------------


def test_it_refuses_in_a_sentence():
    cpu = torch.device("cpu")
    assert STAND_IN.supports(Problem(1, 1, 9, 9, 64, "float32"), cpu) is None
    wide = STAND_IN.supports(Problem(1, 1, 9, 9, 300, "float32"), cpu)
    assert wide is not None
    assert "at most 256 dimensions" in wide
    assert STAND_IN.supports(Problem(1, 1, 9, 9, 64, "bfloat16"), cpu) is not None
