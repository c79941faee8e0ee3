"""One walk of a head, and what a real kernel says of the same rows. No cache here."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from app.state_tiles import Tiles
from kernels import Problem, attention, choose
from kernels.trace import Walk, walk
from vit.trace import Trace

BACKWARD = "fa2-backward"


@dataclass(frozen=True)
class Real:
    """What another kernel, the one that this machine takes for its maps, says of the walk's rows."""

    implementation: str
    dtype: str
    largest_difference: float  # of the walk's output to its


@dataclass(frozen=True)
class Walked:
    """A walk, and what a real kernel says of the same rows where the walk is not a broken one."""

    walk: Walk
    real: Real | None

    @property
    def nbytes(self) -> int:
        """Bytes that the walk keeps."""
        return sum(tensor.nbytes for tensor in tensors_of(self.walk))


def walked(traced: Trace, layer: int, head: int, tiles: Tiles, query_tile: int) -> Walked:
    """Walk one query tile of one head of a trace, in float32.

    Raises:
        TraceError: the walk cannot be taken, in one sentence.
    """
    part = traced.layers[layer]
    q, k, v = (tensor[0, head].float().contiguous() for tensor in (part.q, part.k, part.v))
    found = walk(
        q,
        k,
        v,
        implementation=tiles.algorithm,
        query_tile=query_tile,
        block_q=tiles.block_q,
        block_k=tiles.block_k,
        broken=tiles.broken,
        causal=tiles.causal,
        scale=traced.scale,
    )
    return Walked(found, None if tiles.broken else real_of(traced, layer, head, found))


def real_of(traced: Trace, layer: int, head: int, right: Walk) -> Real:
    """The same rows by the kernel that this machine chooses, in the trace's own dtype."""
    part = traced.layers[layer]
    q, k, v = (tensor[:, head : head + 1] for tensor in (part.q, part.k, part.v))
    start, end = right.query_start, right.query_start + right.rows
    if right.causal:  # a causal mask is aligned to the last key, so the keys end with the rows
        q, k, v = q[:, :, :end], k[:, :, :end], v[:, :, :end]
    else:
        q = q[:, :, start:end]
    name = choose(Problem.of(q, k, right.causal), q.device)
    take = gradient_of_q if right.implementation == BACKWARD else output_of
    found = take(q, k, v, traced.scale, right.causal, name)[0, 0, -right.rows :]
    difference = (found.double().cpu() - right.output.double().cpu()).abs().max()
    return Real(name, str(q.dtype).removeprefix("torch."), float(difference))


def output_of(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, name: str) -> Tensor:
    return attention(q, k, v, scale, causal, name)[0]


def gradient_of_q(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, name: str) -> Tensor:
    """dQ where the gradient of the output is 1 everywhere, as in the walk."""
    with torch.enable_grad():
        q, k, v = (tensor.clone() for tensor in (q, k, v))  # autograd takes no inference tensors
        q.requires_grad_()
        output, _ = attention(q, k, v, scale, causal, name)
        return torch.autograd.grad(output, q, torch.ones_like(output))[0]


def tensors_of(one: Walk) -> list[Tensor]:
    """Every tensor that a walk keeps."""
    held: list[object] = [one.output, one.log_sum_exp]
    for step in one.steps:
        held += [getattr(step, field.name) for field in fields(step)]
        held += step.extra.values()
    return [tensor for tensor in held if isinstance(tensor, Tensor)]
