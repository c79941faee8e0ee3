"""Watch one call of an implementation: which operators of torch it calls, which kernels it launches."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ALLOCATE = (
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
)


class Launch(NamedTuple):
    """A launch as it was made."""

    compiled: Any  # the kernel, as Triton holds it
    programs: int
    arguments: list  # all of them, in the order of the kernel's signature


class Watch(TorchDispatchMode):
    """Sees every operator of torch and, where launchers `note` them, every launch in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Tensor] = []  # memory that was allocated and not filled
        self.launches: list[Launch] = []
        self.others: list[str] = []  # operators that compute something

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.name().split(".")[0] in ALLOCATE:
            self.made.append(result)
        elif not func.is_view:
            self.others.append(func.name())
        return result

    def __enter__(self) -> Watch:
        self.token = WATCH.set(self)
        return super().__enter__()

    def __exit__(self, *fault) -> None:
        WATCH.reset(self.token)
        super().__exit__(*fault)


WATCH: ContextVar[Watch | None] = ContextVar("WATCH", default=None)


def note(
    kernel: Any, compiled: Any, programs: int, arguments: Sequence[Any], named: dict[str, Any]
) -> None:
    """For launchers: tell whoever watches of a launch. named may hold the compiler's options too."""
    watch = WATCH.get()
    if watch is None:
        return
    missing = list(inspect.signature(kernel.fn).parameters.values())[len(arguments) :]
    rest = [named.get(parameter.name, parameter.default) for parameter in missing]
    watch.launches.append(Launch(compiled, programs, [*arguments, *rest]))
