"""Rows and columns of dP = dO V^T equal those of the float64 product."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import Tensor

from kernels import (
    Problem,
    attention,
    attention_columns,
    attention_gradient_columns,
    attention_gradient_rows,
    attention_product,
    attention_rows,
    reference,
)
from kernels.masks import causal_mask
from kernels.recompute.proof import gradient_rows_error
from tests.kernels.conftest import cases, make_tensors
from tests.kernels.test_recompute import ON_CPU, SHAPES, WAYS, picks


def true_gradient(grad_output: Tensor, v: Tensor, causal: bool) -> Tensor:
    """dP in float64, all of it; 0 where a key is hidden."""
    product = reference.scores(grad_output, v, 1.0)
    return product * causal_mask(*product.shape[-2:], v.device) if causal else product


@pytest.mark.usefixtures("poisoned_empty")
@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_gradient_rows_and_columns(way, problem, device, dtype):
    """Within what float32 sums of head_dim terms can lose; products of the inputs are exact in float32."""
    part = import_module(way)
    grad_output, _, v = make_tensors(problem, device, dtype)
    truth = true_gradient(grad_output, v, problem.causal)
    bound = true_gradient(grad_output.abs(), v.abs(), problem.causal)
    bound *= 2 * problem.head_dim * torch.finfo(torch.float32).eps
    for picked in picks(problem.queries):
        index = torch.tensor(picked, dtype=torch.int64, device=device)
        rows = part.gradient_rows(grad_output, v, index, problem.causal)
        assert rows.dtype == torch.float32
        assert ((rows - truth[:, :, index]).abs() <= bound[:, :, index]).all()
    for picked in picks(problem.keys):
        index = torch.tensor(picked, dtype=torch.int64, device=device)
        columns = part.gradient_columns(grad_output, v, index, problem.causal)
        assert columns.shape == truth[..., index].shape
        assert ((columns - truth[..., index]).abs() <= bound[..., index]).all()


@pytest.mark.parametrize(("way", "device", "dtype"), cases(WAYS))
def test_whole_numbers_come_back_exactly(way, device, dtype):
    part = import_module(way)
    problem = Problem(1, 4, 70, 30, 40, causal=True, kv_heads=2)
    grad_output, _, v = (t.mul(2).round() for t in make_tensors(problem, device, dtype))
    truth = true_gradient(grad_output, v, True)
    for picked in ([3], list(range(70))):
        index = torch.tensor(picked, device=device)
        found = part.gradient_rows(grad_output, v, index, True)
        assert torch.equal(found.double(), truth[:, :, index])


@pytest.mark.parametrize("way", ON_CPU)
def test_any_strides_and_garbage_behind_the_end(way):
    part = import_module(way)
    grad_output, _, v = make_tensors(Problem(2, 2, 65, 65, 40), "cpu", torch.float32)
    index = torch.tensor([0, 64])
    dirty = [torch.full((2, 164, 2, 40), torch.nan).transpose(1, 2)[:, :, :65] for _ in "ov"]
    dirty[0].copy_(grad_output)
    dirty[1].copy_(v)
    clean = part.gradient_rows(grad_output, v, index, False)
    assert torch.allclose(part.gradient_rows(*dirty, index, False), clean, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("_name", "device", "dtype"), cases(["auto"]))
def test_weighted_by_p_they_sum_to_delta(_name, device, dtype):
    """sum_j P_ij dP_ij = dO_i . O_i, which the backward pass calls delta. Dao et al. 2022, appendix B.2."""
    problem = Problem(1, 2, 100, 80, 64, causal=True)
    q, k, v = make_tensors(problem, device, dtype)
    grad_output = torch.randn(q.shape, device=device).to(dtype)
    output, lse = attention(q, k, v, causal=True)
    weights = attention_rows(q, k, lse, range(100), causal=True)
    grads = attention_gradient_rows(grad_output, v, range(100), causal=True)
    delta = (grad_output.double() * output.double()).sum(-1)
    rounding = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}[dtype]
    assert ((weights.double() * grads.double()).sum(-1) - delta).abs().max() <= rounding
    columns = attention_gradient_columns(grad_output, v, [0, 79], causal=True)
    assert (columns - grads[..., [0, 79]]).abs().max() <= 1e-4
    assert gradient_rows_error(grads, grad_output, v, range(100), causal=True) <= 1e-4


# --- the public doors -------------------------------------------------------------------------------

V = torch.randn(1, 2, 5, 8)


@pytest.mark.parametrize(
    ("grad_output", "v", "error", "words"),
    [
        (V.double(), V, TypeError, "grad_output must be"),
        (V[0], V, ValueError, "grad_output must be"),
        (V, V.half(), TypeError, "v must be a torch.float32 tensor like grad_output"),
        (V, V[..., :4], ValueError, "v must be .* to fit grad_output"),
        (V, torch.randn(1, 3, 5, 8), ValueError, "v has 3 heads"),
        (V, V.to("meta"), ValueError, "v is on meta but grad_output is on cpu"),
    ],
)
def test_one_sentence_names_the_argument(grad_output, v, error, words):
    for door in (attention_gradient_rows, attention_gradient_columns):
        with pytest.raises(error, match=words) as raised:
            door(grad_output, v, [0])
        assert "\n" not in str(raised.value)


def test_an_index_out_of_range():
    with pytest.raises(ValueError, match="rows must lie in 0 to 2"):
        attention_gradient_rows(V[:, :, :3], V, [3])
    with pytest.raises(ValueError, match="columns must lie in 0 to 4"):
        attention_gradient_columns(V[:, :, :3], V, [5])


def test_nothing_that_is_rebuilt_carries_a_gradient():
    """Also where the arguments do: no graph is kept behind a map."""
    q, k, v = (
        t.requires_grad_() for t in make_tensors(Problem(1, 2, 9, 9, 8), "cpu", torch.float32)
    )
    output, lse = attention(q, k, v)
    assert lse.requires_grad
    w = torch.rand(9, requires_grad=True)
    rebuilt = [
        attention_rows(q, k, lse, [0]),
        attention_columns(q, k, lse, [0]),
        attention_product(w, q, k, lse),
        attention_gradient_rows(output, v, [0]),
        attention_gradient_columns(output, v, [0]),
    ]
    assert not any(part.requires_grad for part in rebuilt)
    assert torch.is_grad_enabled()
