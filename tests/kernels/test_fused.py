"""What a block does around attention: the fused kernels against torch's layers in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.fused import (
    WIDEST,
    layer_norm,
    linear_add,
    reason_against_linear,
    reason_against_norm,
)

SHAPES = [(1, 64, 128), (7, 128, 64), (64, 64, 64), (130, 192, 128)]  # rows, width, out
ROWS = [(1, 64), (5, 48), (7, 384), (3, 1)]  # rows, width
EPS = 1e-6


def inputs(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> list[Tensor]:
    """tokens, weight, bias, scale, residual"""
    rows, width, out = shape
    torch.manual_seed(rows)
    shapes = [(rows, width), (out, width), (out,), (out,), (rows, out)]
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    tensors[1] /= width**0.5
    return [tensor.to(device, dtype) for tensor in tensors]


def norm_inputs(shape: tuple[int, int], dtype: torch.dtype, device: str) -> list[Tensor]:
    """tokens that lie off zero, weight, bias"""
    torch.manual_seed(shape[0])
    tokens = 3 * torch.randn(shape, dtype=torch.float64) + 5
    vectors = torch.randn(2, shape[1], dtype=torch.float64)
    return [tensor.to(device, dtype) for tensor in (tokens, *vectors)]


def exact(*tensors: Tensor) -> Tensor:
    """linear_add in float64, from the same rounded inputs."""
    tokens, weight, bias, scale, residual = (tensor.double() for tensor in tensors)
    return residual + scale * F.linear(tokens, weight, bias)


def exact_norm(*tensors: Tensor) -> Tensor:
    tokens, weight, bias = (tensor.double() for tensor in tensors)
    return F.layer_norm(tokens, weight.shape, weight, bias, EPS)


def assert_rounded_once(found: Tensor, truth: Tensor, width: int) -> None:
    """Half a unit in the last place of the result, and float32's error of the sum."""
    unit = torch.finfo(found.dtype).eps / 2
    slack = 4 * width**0.5 * torch.finfo(torch.float32).eps
    error = (found.double() - truth).abs()
    assert (error <= unit * truth.abs() + slack * truth.abs().max()).all(), error.max()


@pytest.mark.interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_linear_kernel(shape, dtype) -> None:
    from kernels.fused_triton import launch_linear

    tensors = inputs(shape, dtype, "cpu")
    assert_rounded_once(launch_linear(*tensors), exact(*tensors), shape[1])


@pytest.mark.interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", ROWS)
def test_norm_kernel(shape, dtype) -> None:
    from kernels.fused_triton import launch_norm

    tensors = norm_inputs(shape, dtype, "cpu")
    tokens, weight, bias = tensors
    assert_rounded_once(launch_norm(tokens, weight, bias, EPS), exact_norm(*tensors), shape[1])


@pytest.mark.interpreter
def test_any_strides_and_batch() -> None:
    from kernels.fused_triton import launch_linear, launch_norm

    tokens, weight, bias, scale, residual = inputs((12, 64, 64), torch.float32, "cpu")
    wide = torch.randn(2, 6, 128)
    wide[..., ::2] = tokens.view(2, 6, 64)
    across = residual.view(2, 6, 64).transpose(0, 1).contiguous().transpose(0, 1)
    found = launch_linear(wide[..., ::2], weight.t().contiguous().t(), bias, scale, across)
    expected = exact(tokens, weight, bias, scale, residual)
    assert_rounded_once(found, expected.view(2, 6, 64), 64)
    normed = launch_norm(wide[..., ::2], scale, bias, EPS)
    assert_rounded_once(normed, exact_norm(tokens, scale, bias).view(2, 6, 64), 64)


def test_on_a_cpu_torch_does_it() -> None:
    tokens, weight, bias, scale, residual = inputs((5, 12, 20), torch.float32, "cpu")
    product = F.linear(tokens, weight, bias)
    found = linear_add(tokens, weight, bias, scale, residual)
    assert torch.equal(found, torch.addcmul(residual, scale, product))
    normed = layer_norm(residual, scale, bias, EPS)
    assert torch.equal(normed, F.layer_norm(residual, (20,), scale, bias, EPS))


@pytest.fixture
def says_it_is_on_a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(Tensor, "device", torch.device("cuda"))


@pytest.mark.usefixtures("says_it_is_on_a_gpu")
@pytest.mark.parametrize(
    ("width", "dtype", "word"),
    [(60, torch.float16, "multiples"), (64, torch.float32, "half precision")],
)
def test_why_torch_does_it(width, dtype, word) -> None:
    tokens, weight = torch.empty(3, width, dtype=dtype), torch.empty(64, width, dtype=dtype)
    assert word in (reason_against_linear(tokens, weight) or "")


@pytest.mark.usefixtures("says_it_is_on_a_gpu")
def test_why_torch_does_it_with_wide_rows() -> None:
    row = torch.empty(WIDEST + 1, dtype=torch.float16)
    assert "rows of at most" in (reason_against_norm(row[None], row, row) or "")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "shape", [*SHAPES, (257, 384, 1536), (1370, 1536, 384), (5477, 384, 384), (22000, 1536, 384)]
)
def test_gpu_linear(shape, dtype) -> None:
    tensors = inputs(shape, dtype, "cuda")
    assert reason_against_linear(*tensors) is None
    assert_rounded_once(linear_add(*tensors), exact(*tensors), shape[1])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [*ROWS, (1371, 384), (257, 768), (100, WIDEST)])
def test_gpu_norm(shape, dtype) -> None:
    tensors = norm_inputs(shape, dtype, "cuda")
    tokens, weight, bias = tensors
    assert reason_against_norm(tokens, weight, bias) is None
    assert_rounded_once(layer_norm(tokens, weight, bias, EPS), exact_norm(*tensors), shape[1])


@pytest.mark.gpu
def test_gpu_gradients_still_flow() -> None:
    tensors = inputs((130, 64, 64), torch.float16, "cuda")
    tensors[1].requires_grad_(True)
    assert reason_against_linear(*tensors) is not None
    linear_add(*tensors).sum().backward()
    assert tensors[1].grad is not None
    tokens, weight, bias = norm_inputs((5, 64), torch.float16, "cuda")
    layer_norm(tokens, weight.requires_grad_(True), bias, EPS).sum().backward()
    assert weight.grad is not None


@pytest.mark.interpreter
def test_tiles_fill_a_gpu_and_fit() -> None:
    from kernels.fused_triton import tiles_for

    for rows in (1, 257, 1370, 4096, 21905):
        for columns, inner in [(384, 384), (384, 1536), (192, 192), (64, 64), (1024, 4096)]:
            tiles = tiles_for(rows, columns, inner)
            assert columns % tiles.block_columns == inner % tiles.block_inner == 0
            numbers = (tiles.block_rows + tiles.block_columns) * tiles.block_inner
            assert 2 * numbers * tiles.stages <= 99 * 2**10
    assert tiles_for(1370, 384, 1536).block_rows == 64
    assert tiles_for(4096, 384, 1536).block_rows == 128
