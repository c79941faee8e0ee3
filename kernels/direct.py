"""Launch a compiled kernel once more, with other addresses and nothing else new.

The one place that calls Triton's launcher past Triton's Python, which takes most of a launch's time on the
host. That call is not a public interface and differs from release to release: `kernels.repeat.tried` lets only
those here that were tried. What `reason_against` refuses is launched the plain way.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from triton import knobs
from triton.backends.nvidia.driver import make_tensordesc_arg
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime import driver

MOST_MAPS = 64
"""Addresses of one tensor whose TMA descriptor is kept: 128 bytes each. They come again, as memory does."""

Place = tuple[int, int]
"""Where an address comes from: which of the tensors of the call, and how many bytes behind its first."""


def reason_against(compiled: Any, arguments: Sequence[Any]) -> str | None:
    """None, or one sentence saying why this kernel is launched the plain way."""
    if compiled.metadata.target.backend != "cuda":
        return "Only kernels for CUDA are launched directly."
    run = compiled.run
    if run.global_scratch_size or run.profile_scratch_size:
        return "The kernel wants memory from Triton at each launch."
    descriptors = sum(isinstance(a, TensorDescriptor) for a in arguments)
    if descriptors != len(getattr(compiled.metadata, "tensordesc_meta", None) or ()):
        return "Its descriptors are not all TMA's."
    if any(isinstance(a, tuple) and any(isinstance(x, Tensor) for x in a) for a in arguments):
        return "A tensor stands inside a tuple."
    return None


def hooked() -> bool:
    """Whether someone, a profiler mostly, listens to launches. A direct launch would pass him by."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


class Count:
    """Of launches."""

    number = 0


@contextmanager
def counted() -> Iterator[Count]:
    """How many kernels of Triton this thread launches inside."""
    count, thread = Count(), threading.get_ident()

    def one_more(metadata: Any) -> None:
        count.number += threading.get_ident() == thread

    knobs.runtime.launch_enter_hook.add(one_more)
    try:
        yield count
    finally:
        knobs.runtime.launch_enter_hook.remove(one_more)


def stream_of(device: int) -> int:
    """The stream that is current on this device, as a launch takes it."""
    return driver.active.get_current_stream(device)  # pyright: ignore[reportAttributeAccessIssue]


@dataclass
class Address:
    """As much of a tensor as a descriptor's encoding asks for; it keeps no memory alive."""

    address: int

    def data_ptr(self) -> int:
        return self.address


class Descriptor:
    """One TMA descriptor among the arguments: encoded again only for an address that it has not met."""

    def __init__(self, model: TensorDescriptor, meta: dict) -> None:
        self.model, self.meta = copy.copy(model), meta
        self.model.base = None
        self.maps: dict[int, Any] = {}

    def arguments(self, address: int) -> list:
        """What the launcher takes for it: the encoded map, then sizes and strides."""
        here = copy.copy(self.model)
        here.base = Address(address)
        return make_tensordesc_arg(here, self.meta)

    def encode(self, address: int) -> Any:
        """The map for a tensor that begins here, kept in `maps`."""
        if len(self.maps) >= MOST_MAPS:
            self.maps.clear()
        self.maps[address] = encoded = self.arguments(address)[0]
        return encoded


class Direct:
    """One launch, to be made again. It holds no tensor; where one was, `place_of` tells whose address to put.

    arguments: all that the kernel was launched with, in the order of its signature.
    """

    def __init__(
        self,
        compiled: Any,
        programs: int,
        arguments: Sequence[Any],
        place_of: Callable[[Tensor], Place],
    ) -> None:
        metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
        self.flat: list[Any] = []
        self.pointers: list[tuple[int, int, int]] = []  # where in `flat`, which tensor, bytes on
        self.descriptors: list[tuple[int, int, int, dict, Descriptor]] = []
        for argument in arguments:
            if isinstance(argument, TensorDescriptor):
                descriptor = Descriptor(argument, next(metas))
                place = (len(self.flat), *place_of(argument.base))
                self.descriptors.append((*place, descriptor.maps, descriptor))
                self.flat += descriptor.arguments(argument.base.data_ptr())
            elif isinstance(argument, Tensor) and argument.numel():
                self.pointers.append((len(self.flat), *place_of(argument)))
                self.flat.append(0)
            else:
                # A tensor without elements lies nowhere.
                self.flat.append(0 if isinstance(argument, Tensor) else argument)
        self.compiled = compiled  # whoever holds the kernel keeps its code loaded
        self.call = caller(compiled, programs)

    def __call__(self, stream: int, addresses: Sequence[int]) -> None:
        """Launch it on this stream of the current device."""
        flat = self.flat.copy()
        for where, tensor, behind in self.pointers:
            flat[where] = addresses[tensor] + behind
        for where, tensor, behind, maps, descriptor in self.descriptors:
            address = addresses[tensor] + behind
            flat[where] = maps.get(address) or descriptor.encode(address)
        self.call(stream, flat)


def caller(compiled: Any, programs: int) -> Callable[[int, list], None]:
    """-> how this release of Triton launches: (stream, arguments with descriptors taken apart)."""
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    # Where there are descriptors, Triton wraps its launcher in what encodes them.
    launch = inspect.getclosurevars(run.launch).nonlocals["launcher"] if wraps(run) else run.launch
    cooperative, dependent = run.launch_cooperative_grid, run.launch_pdl
    if hasattr(run, "arg_annotations"):  # 3.7
        annotations, signature = run.arg_annotations, run.kernel_signature

        def call(stream: int, flat: list) -> None:
            launch(
                programs, 1, 1, stream, function, cooperative, dependent, metadata,
                None, None, None, None, None, annotations, signature, flat,
            )  # fmt: skip

    else:

        def call(stream: int, flat: list) -> None:
            launch(
                programs, 1, 1, stream, function, cooperative, dependent,
                None, None, metadata, None, None, None, *flat,
            )  # fmt: skip

    return call


def wraps(run: Any) -> bool:
    """Whether Triton's launcher stands behind a Python function."""
    return inspect.isfunction(run.launch)
