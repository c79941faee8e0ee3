"""Triton's interpreter with a counter at every load and store of the kernels that run in it.

Imports Triton, which must be the interpreter: `kernels.triton_mode.interprets()`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from triton.runtime import InterpreterError, interpreter

from kernels.traffic import without_values
from kernels.traffic.count import Count
from kernels.traffic.kinds import run_each_kind
from kernels.traffic.ledger import TrafficError
from kernels.traffic.remembered import Remembered
from kernels.triton_mode import INTERPRETER_LOCK, take_turns

take_turns()  # before `counting` puts something in the same place, which it will take away again


@contextmanager
def counting(values: bool = False) -> Iterator[Count]:
    """Count the launches inside, of this thread; other threads' launches wait until it is over.

    With `values` every program computes as ever. Without, two programs stand for all of their kind (see
    `kinds`) and go through the same loops, loads and stores, but on no memory: what is loaded is zero, what
    is stored is dropped, products are not multiplied, and a helper that is called again in the same way is
    not run again. No loop and no mask of our kernels depends on a value, but for one, see `kinds.LOADED`, so the
    count is the same; a test insists. Tensors on torch's device "meta", which take no memory, will then do.
    """
    count = Count()
    with INTERPRETER_LOCK, ExitStack() as stack:
        for owner, name, new in [
            *bookkeeping(count),
            *(without_detours() if values else shortened(count)),
            *counters(count, values),
        ]:
            stack.enter_context(swapped(owner, name, new))
        yield count


@contextmanager
def swapped(owner: Any, name: str, new: Any) -> Iterator[None]:
    """`owner.name` is `new` inside."""
    before = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, before)


Replacement = tuple[Any, str, Any]
"""Whose attribute, its name, and what stands there while counting."""


def counters(count: Count, values: bool) -> list[Replacement]:
    """Every load and store of Triton's language ends in one of two places; atomics have their own."""
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    # Triton 3.9 changed what comes behind the mask, so it is passed on as it comes.
    def counted_load(self, pointers, mask, *rest, **named):
        count.add(read=bytes_under(pointers, mask))
        if values:
            return load(self, pointers, mask, *rest, **named)
        return without_values.loaded(pointers, count.integer)

    def counted_store(self, pointers, value, mask, *rest, **named):
        count.add(written=bytes_under(pointers, mask))
        return store(self, pointers, value, mask, *rest, **named) if values else None

    def refused(*_, **__):
        raise TrafficError("This kernel adds with atomics, and only loads and stores are counted.")

    return [
        (builder, "create_masked_load", counted_load),
        (builder, "create_masked_store", counted_store),
        (builder, "create_atomic_rmw", refused),
        (builder, "create_atomic_cas", refused),
    ]


def bytes_under(pointers: Any, mask: Any) -> int:
    """Bytes of the elements that a mask lets through; it may come as a bare array, or not at all."""
    element_bytes = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    if mask is None:
        return pointers.data.size * element_bytes
    inside = mask if isinstance(mask, np.ndarray) else mask.data
    if inside.shape != pointers.data.shape:
        inside = np.broadcast_to(inside, pointers.data.shape)
    return int(np.count_nonzero(inside)) * element_bytes


def bookkeeping(count: Count) -> list[Replacement]:
    """A line for each launch of this thread; another thread's launch waits its turn."""
    run, counter = interpreter.InterpretedFunction.run, threading.get_ident()

    def counted_run(self, *arguments, **named):
        if threading.get_ident() == counter:
            count.begin(self.fn.__name__)
            try:
                return run(self, *arguments, **named)
            except InterpreterError as fault:  # Triton wraps what is raised inside a kernel
                if isinstance(fault.__cause__, TrafficError):
                    raise fault.__cause__ from None
                raise
        with INTERPRETER_LOCK:
            return type(self).run(self, *arguments, **named)

    return [(interpreter.InterpretedFunction, "run", counted_run)]


def without_detours(remembered: Remembered | None = None) -> list[Replacement]:
    """The same interpreter, several times faster, and with numpy 2.4 under Triton 3.6 too.

    It looks for an int32 overflow after each addition and product of integers, and makes Triton's language
    ready once more at each call of a device helper, where the kernel that calls it has done so, and once is
    enough for Triton's own. Triton 3.6 turns an array of one element into an index in a way that numpy 2.4
    refuses.
    """
    builder, ready = interpreter.interpreter_builder, set()
    make_tensors_ready = interpreter._patch_lang_tensor

    def call_device_helper(helper, *arguments, **named):
        if helper.fn.__module__ not in ready:
            interpreter._patch_lang(helper.fn)
            ready.add(helper.fn.__module__)
        if remembered is None:
            return helper.rewrite()(*arguments, **named)
        return remembered.call(helper, helper.rewrite(), arguments, named)

    def with_an_index(tensor, scope):
        make_tensors_ready(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return [
        (builder, "options", dataclasses.replace(builder.options, sanitize_overflow=False)),
        (interpreter.InterpretedFunction, "__call__", call_device_helper),
        (interpreter, "_patch_lang_tensor", with_an_index),
    ]


def shortened(count: Count) -> list[Replacement]:
    """No values, nothing twice, and two programs of each kind."""
    remembered = Remembered(count)

    def call_grid(executor, *arguments, **named):
        run_each_kind(executor, arguments, named, count)

    return [
        *without_detours(remembered),
        *without_values.replacements(),
        *remembered.replacements(),
        (interpreter.GridExecutor, "__call__", call_grid),
    ]
