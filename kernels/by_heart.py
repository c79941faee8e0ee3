"""Learn one kind of call by watching it, and do it again.

A call is learnt only where it was seen to do nothing but allocate, look at its tensors another way, and launch:
the watch sees every operator of torch, and Triton counts the launches. What it launched must have come from its
tensors as they are, or from memory that it allocated itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kernels.direct import Direct, counted, hooked, reason_against, stream_of
from kernels.watch import Watch

SCRATCH_STEP = 256
"""Bytes; a piece of the scratch memory begins at a multiple, as all that torch allocates on a GPU does."""

Empty = tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]
"""How to make an empty tensor: `new_empty_strided` of one without elements, which knows dtype and device; sizes
and strides."""


@dataclass(frozen=True)
class ByHeart:
    """One kind of call: what it allocates, and what it launches."""

    device: int
    answers: tuple[Empty, ...]
    scratch: Empty | None  # all memory that only the kernels see, in one piece
    pieces: tuple[int, ...]  # bytes at which its pieces begin
    launches: tuple[Direct, ...]

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...] | None:
        """What the call that was watched did, for these tensors; None where somebody listens to launches."""
        if hooked():
            return None
        answers = tuple([new(size, stride) for new, size, stride in self.answers])
        addresses = [tensor.data_ptr() for tensor in (*tensors, *answers)]
        if self.scratch is not None:
            new, size, stride = self.scratch
            scratch = new(size, stride)  # held until all is launched
            start = scratch.data_ptr()
            addresses += [start + piece for piece in self.pieces]
        if torch.cuda.current_device() == self.device:
            self.launch(addresses)
        else:
            with torch.cuda.device(self.device):
                self.launch(addresses)
        return answers

    def launch(self, addresses: list[int]) -> None:
        """On the stream that is current, one kernel after the other."""
        stream = stream_of(self.device)
        for launch in self.launches:
            launch(stream, addresses)


def watched(
    call: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], ByHeart | None]:
    """Its answers, and how to repeat it; None where it cannot be repeated. Not while somebody listens to launches."""
    # Tensors of our own, so that each is known by itself, even where q, k and v are one.
    inputs = [tensor.detach() for tensor in tensors]
    with Watch() as watch, counted() as launches:
        answers = call(*inputs)
    if watch.others or len(watch.launches) != launches.number:
        return answers, None
    return answers, learnt(watch, inputs, answers)


def learnt(watch: Watch, inputs: Sequence[Tensor], answers: Sequence[Tensor]) -> ByHeart | None:
    """How to do again what was watched; None where that cannot be."""
    device = inputs[0].device
    made = {storage_of(t): t for t in watch.made if t.numel() and t.device == device}
    owners = [made.pop(storage_of(tensor), None) for tensor in answers]
    if any(owner is None for owner in owners) or not all(map(is_whole, answers)):
        return None
    tensors = [*answers, *made.values()]
    places = {storage_of(tensor): i for i, tensor in enumerate(tensors, len(inputs))}

    def place_of(tensor: Tensor) -> tuple[int, int]:
        """Which of the addresses, and how many bytes on."""
        for number, own in enumerate(inputs):
            if tensor is own:
                return number, 0
        return places[storage_of(tensor)], int(tensor.storage_offset()) * tensor.element_size()

    if any(reason_against(launch.compiled, launch.arguments) for launch in watch.launches):
        return None
    try:
        launches = tuple(Direct(*launch, place_of) for launch in watch.launches)
    except KeyError:  # a tensor from elsewhere, a view of q perhaps
        return None
    sizes = [-(-t.numel() * t.element_size() // SCRATCH_STEP) * SCRATCH_STEP for t in made.values()]
    pieces = tuple(accumulate(sizes, initial=0))
    empties = tuple(how_to_make(tensor) for tensor in answers)
    new = answers[0].new_empty(0, dtype=torch.uint8).new_empty_strided
    scratch = (new, (pieces[-1],), (1,)) if sizes else None
    return ByHeart(inputs[0].get_device(), empties, scratch, pieces[:-1], launches)


def how_to_make(tensor: Tensor) -> Empty:
    """An empty one like this."""
    return tensor.new_empty(0).new_empty_strided, tuple(tensor.shape), tensor.stride()


def storage_of(tensor: Tensor) -> int:
    """The address at which its memory begins."""
    return tensor.untyped_storage().data_ptr()


def is_whole(tensor: Tensor) -> bool:
    """Whether it fills its memory, and so is known by its sizes and strides."""
    size = tensor.numel() * tensor.element_size()
    return not tensor.storage_offset() and tensor.untyped_storage().nbytes() == size
