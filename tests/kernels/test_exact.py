"""Bits, not bounds: the same in 250 runs, and the exact result where arithmetic is exact.

A compiler between us and the GPU has reused registers that an asynchronous matrix product was still
reading; the numbers were then rarely and slightly wrong, which a bound forgives and these tests do not.
"""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from kernels import Problem, attention
from kernels.registry import IMPLEMENTATIONS, load
from kernels.tile_sizes import Table, Tiles, architecture
from tests.kernels.conftest import OURS, WITH_BACKWARD

pytestmark = pytest.mark.gpu

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
RUNS = 20
EXACT = [name for name in OURS if name != "fa1"]
"""fa1 divides by the running sum after every tile, which is not exact."""


def tables(name: str) -> dict[str, Table]:
    """Every table of tile sizes of an implementation, by its name in the source."""
    try:
        module = importlib.import_module(f"{IMPLEMENTATIONS[name]}.tile_sizes")
    except ModuleNotFoundError:
        return {}
    return {
        title: table
        for title, table in vars(module).items()
        if isinstance(table, dict) and all(isinstance(row, Tiles) for row in table.values())
    }


def rows(direction: str) -> list:
    """(name, title of the table, bytes, width, tiles) of every row for 16-bit inputs."""
    found = {}
    for name in EXACT:
        for title, table in tables(name).items():
            if name == "fa2" and title.startswith("FORWARD") != (direction == "forward"):
                continue
            for (_, size, width), tiles in table.items():
                if size == 2:
                    label = f"{name}-{title}-d{width}-{tiles.block_q}x{tiles.block_k}"
                    label += f"-{tiles.warps}w{tiles.stages}s"
                    found[label] = pytest.param(name, title, size, width, tiles, id=label)
    return list(found.values())


@pytest.fixture
def with_row(monkeypatch):
    """Put a row in the place that this GPU's launches look at."""

    def put(name: str, title: str, size: int, width: int, tiles: Tiles) -> None:
        key = (architecture(torch.device("cuda:0")), size, width)
        monkeypatch.setitem(tables(name)[title], key, tiles)

    return put


def whole_numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    """Integers from -4 to 4."""
    return torch.randint(-4, 5, shape, device="cuda").to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "title", "size", "width", "tiles"), rows("forward"))
def test_whole_numbers_averaged(name, title, size, width, tiles, dtype, with_row):
    """Q = 0 weighs every key alike, so O is the mean of V: sums of whole numbers over a power of two."""
    with_row(name, title, size, width, tiles)
    for tokens in LENGTHS:
        q = torch.zeros(2, 8, tokens, width, device="cuda", dtype=dtype)
        for run in range(RUNS):
            v = whole_numbers(2, 8, tokens, width, dtype=dtype)
            k = torch.randn_like(v)
            output, _ = attention(q, k, v, implementation=name)
            mean = v.double().mean(2, keepdim=True).to(dtype)
            assert torch.equal(output, mean.expand_as(output)), f"{tokens} tokens, run {run}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "title", "size", "width", "tiles"), rows("backward"))
def test_whole_numbers_averaged_backward(name, title, size, width, tiles, dtype, with_row):
    """The same P, so dV is the mean of dO; V = 0 makes dQ and dK exactly 0."""
    if name not in WITH_BACKWARD:
        pytest.skip(f"{name} has no backward")
    with_row(name, title, size, width, tiles)
    for tokens in LENGTHS:
        q = torch.zeros(2, 8, tokens, width, device="cuda", dtype=dtype, requires_grad=True)
        v = torch.zeros_like(q, requires_grad=True)
        for run in range(RUNS):
            k = torch.randn_like(v).requires_grad_()
            outer = whole_numbers(2, 8, tokens, width, dtype=dtype)
            output, _ = attention(q, k, v, implementation=name)
            grad_q, grad_k, grad_v = torch.autograd.grad(output, (q, k, v), outer)
            mean = outer.double().mean(2, keepdim=True).to(dtype)
            assert torch.equal(grad_v, mean.expand_as(grad_v)), f"{tokens} tokens, run {run}"
            assert not grad_q.any(), f"dQ, {tokens} tokens, run {run}"
            assert not grad_k.any(), f"dK, {tokens} tokens, run {run}"


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("heads", "tokens", "width"), [(2, 257, 64), (2, 1024, 64), (2, 799, 128), (2, 200, 59)]
)
@pytest.mark.parametrize("name", [*OURS, "fa3"])
def test_the_same_bits_in_250_runs(name, heads, tokens, width, causal):
    """A race shows as another bit, sooner or later; many small heads keep every multiprocessor busy."""
    problem = Problem(60, heads, tokens, tokens, width, "bfloat16", causal)
    reason = load(name).supports(problem, torch.device("cuda"))
    if reason:
        pytest.skip(reason)
    make = torch.randn(4, 60, heads, tokens, width, device="cuda").bfloat16()
    leaves, outer = [t.requires_grad_() for t in make[:3].unbind()], make[3]
    first = None
    for run in range(250 if name in ("fa2", "fa3") else 10):
        output, lse = attention(*leaves, causal=causal, implementation=name)
        grads = torch.autograd.grad(output, leaves, outer) if name in WITH_BACKWARD else ()
        results = [output.detach(), lse.detach(), *grads]
        first = first or results
        for what, one, other in zip(("O", "lse", "dQ", "dK", "dV"), results, first, strict=False):
            assert torch.equal(one, other), f"{what} differs in run {run}"
