"""The proof passes what is right, sees what is wrong, and needs memory for its samples only."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernels import (
    Problem,
    attention,
    attention_columns,
    attention_gradient_rows,
    attention_product,
    attention_rows,
)
from kernels.recompute import in_torch
from kernels.recompute.proof import (
    columns_error,
    gradient_rows_error,
    product_error,
    rows_error,
)
from tests.kernels.conftest import make_tensors

ROWS, COLUMNS = [0, 5, 69], [0, 7, 29]


@pytest.fixture(params=[False, True], ids=["full", "causal"])
def setting(request) -> tuple[Tensor, Tensor, Tensor, Tensor, bool]:
    """q, k, v, log-sum-exp, causal; under the mask the first queries see nothing."""
    problem = Problem(1, 4, 70, 30, 16, causal=request.param, kv_heads=2)
    q, k, v = make_tensors(problem, "cpu", torch.float32)
    return q, k, v, attention(q, k, v, causal=request.param)[1], request.param


def spoilt(right: Tensor) -> Tensor:
    wrong = right.clone()
    wrong[..., -1] += 0.5
    return wrong


def test_what_is_right_passes_and_what_is_wrong_is_measured(setting):
    q, k, v, lse, causal = setting
    w = torch.rand(70)
    for change, low, high in ((lambda t: t, 0.0, 1e-5), (spoilt, 0.4999, 0.5001)):
        rows = change(attention_rows(q, k, lse, ROWS, causal=causal))
        columns = change(attention_columns(q, k, lse, COLUMNS, causal=causal))
        product = change(attention_product(w, q, k, lse, causal=causal))
        received = change(attention_product(None, q, k, lse, causal=causal))
        grads = change(attention_gradient_rows(q, v, ROWS, causal=causal))
        found = {
            "rows": rows_error(rows, q, k, ROWS, 0.25, causal),
            "columns": columns_error(columns, q, k, lse, COLUMNS, 0.25, causal),
            "product": product_error(product, w, q, k, lse, COLUMNS, 0.25, causal),
            "received": product_error(received, None, q, k, lse, COLUMNS, 0.25, causal),
            "dP": gradient_rows_error(grads, q, v, ROWS, causal),
        }
        assert all(low <= error <= high for error in found.values()), found


def test_the_rows_prove_the_log_sum_exp(setting):
    q, k, _, lse, causal = setting
    rows = attention_rows(q, k, lse + 0.1, ROWS, causal=causal)
    assert rows_error(rows, q, k, ROWS, 0.25, causal) > 0.01


def test_nan_and_another_shape_do_not_pass(setting):
    q, k, _, lse, causal = setting
    product = attention_product(None, q, k, lse, causal=causal)
    product[..., 7] = torch.nan
    assert math.isnan(product_error(product, None, q, k, lse, COLUMNS, 0.25, causal))
    rows = attention_rows(q, k, lse, ROWS[:1], causal=causal)
    with pytest.raises(ValueError, match="result must be"):
        rows_error(rows, q, k, ROWS, 0.25, causal)


def test_no_samples_no_error(setting):
    q, k, _, lse, causal = setting
    assert rows_error(attention_rows(q, k, lse, [], causal=causal), q, k, [], 0.25, causal) == 0.0


class Largest(TorchDispatchMode):
    """The most elements that any tensor made meanwhile has."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            if isinstance(made, Tensor):
                self.elements = max(self.elements, made.numel())
        return result


def test_memory_grows_with_the_samples_not_with_n_squared():
    tokens, heads, dim = 3000, 2, 16
    q, k, v = make_tensors(Problem(1, heads, tokens, tokens, dim), "cpu", torch.float32)
    _, lse = attention(q, k, v)
    rows, grads = attention_rows(q, k, lse, ROWS), attention_gradient_rows(q, v, ROWS)
    columns = attention_columns(q, k, lse, ROWS)
    with Largest() as product_memory:
        product = attention_product(None, q, k, lse)
    assert product_memory.elements <= heads * tokens * in_torch.QUERIES_AT_ONCE
    with Largest() as proof_memory:
        assert rows_error(rows, q, k, ROWS, 0.25) < 1e-5
        assert columns_error(columns, q, k, lse, ROWS, 0.25) < 1e-5
        assert product_error(product, None, q, k, lse, ROWS, 0.25) < 1e-4
        assert gradient_rows_error(grads, q, v, ROWS) < 1e-4
    assert proof_memory.elements <= heads * tokens * dim
