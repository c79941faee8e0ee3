"""A walk shows what the kernel really holds: every number against float64."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kernels
from kernels import attention
from kernels.fa3.stand_in import STAND_IN
from kernels.problem import Problem
from kernels.registry import load
from kernels.story import story
from kernels.tile_sizes import Tiles, with_tiles
from kernels.trace import TITLES, TraceError, Walk, source_line, sram_bytes, walk
from kernels.trace.steps import NAMES, Step
from tests.kernels.conftest import make_tensors

FORWARD = ("naive", "fa1", "fa2", "fa3")
ALL = (*FORWARD, "fa2-backward")
BLOCKS = ((64, 64), (32, 64), (64, 32))
TOLERANCE = 1e-3
ROOT = Path(kernels.__file__).parents[1]
INTERPRETED = pytest.mark.interpreter
BY_NAME = pytest.mark.parametrize("name", ALL)


def head(tokens: int, width: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k, v and a gradient, [tokens, width]."""
    q, k, v = make_tensors(Problem(1, 1, tokens, tokens, width), "cpu", dtype)
    return [*(t[0, 0] for t in (q, k, v)), v[0, 0].flip(0)]


@cache
def walked(
    name: str,
    tokens: int,
    width: int,
    blocks: tuple[int, int] = (64, 64),
    causal: bool = False,
    tile: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Walk:
    q, k, v, grad = head(tokens, width, dtype)
    return walk(
        q,
        k,
        v,
        name,
        tile,
        blocks[0],
        blocks[1],
        causal=causal,
        grad_output=grad if name == "fa2-backward" else None,
    )


class Expected:
    """A step in float64, from q, k and v alone."""

    def __init__(self, found: Walk, step_end: int) -> None:
        q, k, v, grad = (
            t.double() for t in head(found.tokens, found.head_dim, getattr(torch, found.dtype))
        )
        rows = slice(found.query_start, found.query_start + found.rows)
        self.scores = found.scale * q[rows] @ k.T
        if found.causal:
            query = torch.arange(found.tokens)[rows, None]
            self.scores[torch.arange(found.tokens)[None] > query] = -torch.inf
        self.weights = self.scores.softmax(1)
        self.grad_weights = grad[rows] @ v.T
        self.delta = (self.weights * self.grad_weights).sum(1)
        self.grad_scores = self.weights * (self.grad_weights - self.delta[:, None])
        self.lse = self.scores.logsumexp(1)
        self.k, self.v, self.end = k, v, step_end

    def state(self, start: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """Maximum, sum and undivided output of the keys from `start` up to `end`."""
        seen = slice(start, end)
        maximum = self.scores[:, seen].amax(1)
        weights = (self.scores[:, seen] - maximum.nan_to_num(neginf=0.0)[:, None]).exp()
        return maximum, weights.sum(1), weights @ self.v[seen]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


def behind(found: Walk, step: Step, maximum: Tensor, total: Tensor, output: Tensor):
    """Maximum, sum and output so far, measured against a maximum that may lag behind: fa3's."""
    if found.most_rise == 0:
        return maximum, total, output
    lag = (maximum - step.running_max.double()).nan_to_num(0.0)
    assert (lag > -TOLERANCE).all()
    assert (lag < found.most_rise).all()
    return maximum - lag, total * lag.exp(), output * lag.exp()[:, None]


def check_step(found: Walk, n: int) -> None:
    """Every number of a step."""
    step, name = found.steps[n], found.implementation
    start, end = step.key_start, step.key_start + step.keys
    expected = Expected(found, end)
    close(step.scores, expected.scores[:, start:end])
    first, visited = (start, found.tokens) if name == "fa3" else (0, end)
    maximum, total, output = expected.state(first, visited)
    if name in ("fa1", "fa2", "fa3"):
        maximum, total, output = behind(found, step, maximum, total, output)
        close(step.running_max, maximum)
        close(step.running_sum, total)
        some = total.clamp(min=1e-30)[:, None]  # fa3 may meet tiles that a row does not see
        held, share = step.output.double(), output / some
        close(held if name == "fa1" else held / some, share)
        if name != "fa1" and found.dtype == "float32":
            close(held, output)
        if n:
            before = (end, found.tokens) if name == "fa3" else (0, start)
            old_maximum, old_sum, _ = expected.state(*before)
            old_maximum = found.steps[n - 1].running_max.double() if name == "fa3" else old_maximum
            alpha = (old_maximum - maximum.nan_to_num(neginf=0.0)).exp()
            close(step.rescale, alpha if name != "fa1" else old_sum * alpha / total)
        else:
            assert not step.rescale.any()  # exp(-inf): there was nothing before
    elif name == "fa2-backward":
        close(step.running_max, expected.lse)
        close(step.extra["weights"], expected.weights[:, start:end])
        close(step.extra["grad_weights"], expected.grad_weights[:, start:end])
        close(step.extra["delta"], expected.delta)
        close(step.output, expected.grad_scores[:, :end] @ expected.k[:end])
    elif step.phase == "pairs":
        assert not step.output.any()
        assert step.running_max.eq(-torch.inf).all()
    else:
        maximum, total, _ = expected.state(0, found.tokens)
        close(step.running_max, maximum)
        close(step.running_sum, total)
        close(step.extra["weights"], expected.weights[:, start:end])
        if step.phase == "sums":
            close(step.output, expected.weights[:, :end] @ expected.v[:end])


# --- numbers ------------------------------------------------------------------------------------------


@INTERPRETED
@BY_NAME
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tokens", "width"), [*product((197, 257), (64, 40))])
@pytest.mark.parametrize("blocks", BLOCKS[:2])
def test_three_random_steps_are_what_float64_says(name, causal, tokens, width, blocks):
    last_tile = (tokens - 1) // blocks[0]  # cut off at the end of the tokens
    for tile in (random.randrange(last_tile), last_tile):
        found = walked(name, tokens, width, blocks, causal, tile)
        for n in random.choices(range(len(found.steps)), k=3):
            check_step(found, n)
        assert found.largest_error < 1e-5


@INTERPRETED
@BY_NAME
@pytest.mark.parametrize("causal", [False, True])
def test_in_half_precision_too(name, causal):
    """Weights are rounded to float16 before they meet V, naive's scores as well: 1e-3 holds still.

    Of what fa2 has not divided yet it holds once that is divided.
    """
    found = walked(name, 197, 64, causal=causal, tile=2, dtype=torch.float16)
    for n in range(len(found.steps)):
        check_step(found, n)
    assert found.dtype == "float16"
    assert found.output.dtype == torch.float16
    assert 0 < found.largest_error < TOLERANCE


@INTERPRETED
@pytest.mark.parametrize("scale", [-0.3, 0.0, 0.5])
@pytest.mark.parametrize("name", FORWARD)
def test_any_scale(name, scale):
    q, k, v, _ = head(100, 16)
    found = walk(q, k, v, name, block_q=32, block_k=32, scale=scale)
    step = found.steps[1]
    keys = slice(step.key_start, step.key_start + step.keys)
    close(step.scores, scale * q[:32].double() @ k.double()[keys].T)
    assert found.largest_error < 1e-5


@INTERPRETED
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FORWARD)
def test_the_last_output_is_the_kernels_own_to_the_bit(name, causal):
    """The same program, whether its neighbours run or not."""
    q, k, v, _ = head(197, 40)
    runs = STAND_IN if name == "fa3" else load(name)
    with with_tiles(Tiles(32, 64, 4, 1)):
        q, k, v = (t[None, None] for t in (q, k, v))
        output, lse = runs.forward(q, k, v, 40**-0.5, causal)
    for tile in (0, 3, 6):
        found = walked(name, 197, 40, (32, 64), causal, tile)
        rows = slice(found.query_start, found.query_start + found.rows)
        assert found.output.equal(output[0, 0, rows])
        assert found.log_sum_exp.equal(lse[0, 0, rows])


@INTERPRETED
@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_is_the_kernels_own_to_the_bit(causal):
    q, k, v, grad = head(197, 40)
    q, k, v = (t[None, None].requires_grad_() for t in (q, k, v))
    with with_tiles(Tiles(32, 64, 4, 1)):
        attention(q, k, v, causal=causal, implementation="fa2")[0].backward(grad[None, None])
    found = walked("fa2-backward", 197, 40, (32, 64), causal, 3)
    assert q.grad is not None
    assert found.output.equal(q.grad[0, 0, 96:128])


@INTERPRETED
@BY_NAME
def test_the_end_of_the_walk_is_the_output(name):
    found = walked(name, 197, 64, tile=3)
    held = found.steps[-1].output.double()
    if name in ("fa2", "fa3"):
        held = held / found.steps[-1].running_sum[:, None]
    if name == "fa2-backward":
        held = held * found.scale
    close(found.output, held)
    assert found.rows == 5
    assert found.query_start == 192
    last = found.steps[-1]
    close(found.log_sum_exp, last.running_max.double() + last.running_sum.double().log())


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@BY_NAME
def test_compiled_on_a_gpu_the_numbers_are_the_same(name, causal):
    q, k, v, grad = (t.cuda() for t in head(197, 64))
    for tile in (1, 3):
        found = walk(
            q,
            k,
            v,
            name,
            tile,
            32,
            64,
            causal=causal,
            grad_output=grad if name == "fa2-backward" else None,
        )
        for n in range(len(found.steps)):
            check_step(found, n)
        last = found.steps[-1]
        assert (last.bytes_read, last.bytes_written) == (found.formula_read, found.formula_written)
        assert found.bytes_source == "formula"
        assert not found.output.is_cuda


@INTERPRETED
@pytest.mark.slow
@BY_NAME
def test_a_picture_of_1370_tokens_is_walked_to_its_end(name):
    q, k, v, _ = head(1370, 64)
    found = walk(q, k, v, name, query_tile=10)
    assert {step.key_start for step in found.steps} >= set(range(0, 1370, 64))
    assert found.largest_error < TOLERANCE


# --- which tiles --------------------------------------------------------------------------------------


@INTERPRETED
@pytest.mark.parametrize("name", ["fa1", "fa2", "fa3", "fa2-backward"])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_tiles_that_no_row_sees_are_not_visited(name, blocks):
    """As in the whole problem: the last visited tile is read in full, though a part is hidden."""
    for tile in range(2):
        found = walked(name, 197, 64, blocks, True, tile)
        seen_by_any = (tile + 1) * blocks[0]
        starts = [step.key_start for step in found.steps]
        order = reversed if name == "fa3" else list
        assert starts == list(order(range(0, seen_by_any, blocks[1])))
        assert all(step.keys == blocks[1] for step in found.steps)


@INTERPRETED
def test_naive_computes_what_is_hidden():
    found = walked("naive", 197, 64, causal=True, tile=0)
    pairs = [step for step in found.steps if step.phase == "pairs"]
    assert [step.key_start for step in pairs] == [0, 64, 128, 192]
    assert pairs[-1].scores.eq(-torch.inf).all()
    assert [step.phase for step in found.steps] == ["pairs"] * 4 + ["softmax"] + ["sums"] * 4


# --- words and sums -----------------------------------------------------------------------------------


def test_every_name_is_a_heading_of_the_story():
    for key, titles in TITLES.items():
        name = key if key.startswith("fa") else "naive"
        told = {step.title for step in story(name.removesuffix("-backward"))}
        assert told >= set(titles)
        assert NAMES[key] in titles
        for title in titles:
            file, line, text, around = source_line(name, title)
            lines = (ROOT / file).read_text().splitlines()
            assert lines[line - 1].strip() == text.strip()
            assert text in around
            assert not text.lstrip().startswith("#")
    with pytest.raises(TraceError, match="has no step 'Nothing'"):
        source_line("fa2", "Nothing")


def test_what_lies_on_chip():
    """Q 8192, K and V 16384, S 16384, O 16384, m and l 512 bytes."""
    assert sram_bytes("fa2", 64, 64, 64, "float16") == 8192 + 16384 + 16384 + 16384 + 512
    assert sram_bytes("fa1", 64, 64, 40, "float16") == sram_bytes("fa2", 64, 64, 64, "float16")
    assert sram_bytes("fa3", 64, 64, 64, "float16") == sram_bytes("fa2", 64, 64, 64, "float16")
    for name in ALL:
        sizes = [sram_bytes(name, block, block, 64, "float32") for block in (16, 32, 64, 128)]
        assert sizes == sorted(set(sizes))
    with pytest.raises(TraceError, match="eager has no walk"):
        sram_bytes("eager", 64, 64, 64, "float16")


@INTERPRETED
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"implementation": "eager"}, "eager has no walk; choose naive"),
        ({"query_tile": 2}, "query_tile must lie in 0 to 1, not 2"),
        ({"query_tile": -1}, "query_tile must lie in 0 to 1"),
        ({"block_q": 48}, "block_q must be a power of two from 16 to 256, not 48"),
        ({"block_k": 8}, "block_k must be a power of two"),
        ({"broken": "all"}, "No mistake is called 'all'; choose sum-not-rescaled"),
        ({"broken": "divided-every-step", "implementation": "naive"}, "naive cannot make"),
        ({"grad_output": torch.ones(100, 16)}, "is for implementation='fa2-backward' only"),
        ({"q": torch.ones(100)}, "q must be one head"),
        ({"v": torch.ones(99, 16)}, "v must have q's shape"),
        ({"k": torch.ones(100, 16).half()}, "k must have q's shape, dtype and device"),
        (dict.fromkeys("qkv", torch.ones(0, 16)), "nothing to walk"),
        (dict.fromkeys("qkv", torch.ones(100, 16).bfloat16()), "computes bfloat16 wrongly"),
        (dict.fromkeys("qkv", torch.ones(20, 300)), "at most 256 dimensions"),
        (
            dict.fromkeys("qkv", torch.ones(70_000, 16)),
            "64 queries past 70,000 keys takes too long",
        ),
    ],
)
def test_what_cannot_be_walked_is_said_in_a_sentence(change, sentence):
    asked = {**dict.fromkeys("qkv", torch.ones(100, 16)), "implementation": "fa2", **change}
    with pytest.raises(TraceError, match=sentence):
        walk(**asked)
