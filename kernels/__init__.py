"""Attention that keeps no N x N matrix, and any part of that matrix when you ask for it.

    output, lse = attention(q, k, v)
    row = attention_rows(q, k, lse, rows=[17])
    received = attention_product(None, q, k, lse)

Importing this needs neither Triton nor a GPU.
"""

from kernels.door import attention
from kernels.problem import Problem
from kernels.rebuild import (
    attention_columns,
    attention_gradient_columns,
    attention_gradient_rows,
    attention_product,
    attention_rows,
)
from kernels.registry import choose, implementations
from kernels.selftest import self_test
from kernels.triton_mode import prepare

__all__ = [
    "Problem",
    "attention",
    "attention_columns",
    "attention_gradient_columns",
    "attention_gradient_rows",
    "attention_product",
    "attention_rows",
    "choose",
    "implementations",
    "self_test",
]

# None of the above has imported Triton yet; after this it may come.
prepare()
