"""Triton's interpreter on numbers that nobody reads: shapes and masks are real, every float is zero.

Integers are computed as ever, for they steer the loops and the masks; addresses are not, for nothing is
fetched from them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

COMPARISONS = frozenset(
    (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
)


@cache
def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """One zero, seen through this shape; it takes no memory and is shared."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def loaded(pointers: Any, integer: int = 0) -> TensorHandle:
    """What a load gives: zeros, or this integer."""
    element = pointers.get_element_ty()
    numbers = zeros(pointers.data.shape, interpreter._get_np_dtype(element))
    return TensorHandle(numbers if element.is_floating() else numbers + integer, element)


def is_float(handle: Any) -> bool:
    return handle.dtype.scalar.is_floating()


def joined(*handles: Any) -> tuple[int, ...]:
    """The shape of what they give together."""
    shapes = {handle.data.shape for handle in handles}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def replacements() -> list[tuple[Any, str, Any]]:
    """Whose attribute, its name, and what stands there."""
    builder: Any = interpreter.InterpreterBuilder
    binary, unary, ternary, cast = (
        builder.binary_op,
        builder.unary_op,
        builder.ternary_op,
        builder.cast_impl,
    )

    def binary_op(self, left, right, op):
        if not is_float(left):
            return binary(self, left, right, op)
        dtype = np.dtype(bool) if op in COMPARISONS else left.data.dtype
        return TensorHandle(zeros(joined(left, right), dtype), left.dtype.scalar)

    def unary_op(self, one, op):
        return one if is_float(one) else unary(self, one, op)

    def ternary_op(self, condition, one, other, op):
        if not is_float(other):
            return ternary(self, condition, one, other, op)
        shape = joined(condition, one, other)
        return TensorHandle(zeros(shape, other.data.dtype), other.dtype.scalar)

    def cast_impl(self, source, target):
        if not is_float(source):
            return cast(self, source, target)
        dtype = interpreter._get_np_dtype(target)
        return TensorHandle(zeros(source.data.shape, dtype), target.scalar)

    def create_dot(self, left, right, sum_so_far, *_, **__):
        return sum_so_far

    def create_addptr(self, pointers, offsets):
        return TensorHandle(zeros(joined(pointers, offsets), pointers.data.dtype), pointers.dtype)

    return [
        (builder, "binary_op", binary_op),
        (builder, "unary_op", unary_op),
        (builder, "ternary_op", ternary_op),
        (builder, "cast_impl", cast_impl),
        (builder, "create_dot", create_dot),
        (builder, "create_addptr", create_addptr),
    ]
