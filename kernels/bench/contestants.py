"""What a contestant does in one launch: the inputs of a problem, and the work on them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels import recompute
from kernels.bench.timing import Work
from kernels.implementation import Implementation, Saved
from kernels.problem import Problem
from kernels.registry import choose, load


@dataclass(frozen=True)
class Inputs:
    """Random normal numbers, never zeros, on which a GPU draws less power and runs faster."""

    problem: Problem
    q: Tensor  # [batch, heads, queries, head_dim], contiguous
    k: Tensor  # [batch, kv_heads, keys, head_dim], contiguous
    v: Tensor  # like k
    grad_output: Tensor  # like q
    scale: float

    @property
    def forward(self) -> tuple[Tensor, Tensor, Tensor, float, bool]:
        """The arguments of a forward pass."""
        return self.q, self.k, self.v, self.scale, self.problem.causal


def make_inputs(problem: Problem, device: torch.device) -> Inputs:
    """The same numbers for the same problem, in every run."""
    generator = torch.Generator(device).manual_seed(zlib.crc32(str(problem).encode()))
    dtype, kv_heads = getattr(torch, problem.dtype), problem.kv_heads or problem.heads
    q_shape = (problem.batch, problem.heads, problem.queries, problem.head_dim)
    kv_shape = (problem.batch, kv_heads, problem.keys, problem.head_dim)
    q, k, v, grad_output = (
        torch.randn(shape, generator=generator, device=device, dtype=dtype)
        for shape in (q_shape, kv_shape, kv_shape, q_shape)
    )
    return Inputs(problem, q, k, v, grad_output, scale=problem.head_dim**-0.5)


# --- implementations --------------------------------------------------------------------------------


def forward_work(chosen: Implementation, inputs: Inputs) -> Work:
    """One forward pass -> (output, log_sum_exp). No gradient is asked for."""
    return torch.no_grad()(partial(chosen.forward, *inputs.forward))


def backward_work(
    chosen: Implementation, inputs: Inputs, grad_output: Tensor | None = None
) -> Work:
    """One backward pass -> (grad_q, grad_k, grad_v); the forward pass before it is done here, once.

    Unless it is given, the gradient of the output is laid out as the contestant's own output is, so that
    none has to copy it.
    """
    if chosen.backward is None:
        q, k, v = (t.detach().requires_grad_() for t in (inputs.q, inputs.k, inputs.v))
        with torch.enable_grad():
            output, _ = chosen.forward(q, k, v, inputs.scale, inputs.problem.causal)
        grad = laid_out(inputs, output) if grad_output is None else grad_output
        return partial(torch.autograd.grad, output, (q, k, v), grad, retain_graph=True)
    saved = save(chosen, inputs)
    grad = laid_out(inputs, saved.output) if grad_output is None else grad_output
    return torch.no_grad()(partial(chosen.backward, saved, grad, None))


def both_work(chosen: Implementation, inputs: Inputs) -> Work:
    """A forward pass and its backward pass, as in training -> the three gradients."""

    def work() -> object:
        return backward_work(chosen, inputs, inputs.grad_output)()

    return work


def laid_out(inputs: Inputs, output: Tensor) -> Tensor:
    """The gradient of the output, with the output's strides."""
    return torch.empty_like(output).copy_(inputs.grad_output)


def save(chosen: Implementation, inputs: Inputs) -> Saved:
    """What this implementation's forward pass leaves for its backward pass."""
    q, k, v, scale, causal = inputs.forward
    with torch.no_grad():
        if chosen.forward_keeping is not None:
            output, log_sum_exp, kept = chosen.forward_keeping(*inputs.forward)
        else:
            output, log_sum_exp = chosen.forward(*inputs.forward)
            kept = q.new_empty(0)
    return Saved(q, k, v, output, log_sum_exp, kept, scale, causal)


WORKS = {"forward": forward_work, "backward": backward_work, "forward+backward": both_work}


def reason_against(
    chosen: Implementation, direction: str, problem: Problem, device: torch.device
) -> str | None:
    """Why this implementation cannot take part, in one sentence, or None."""
    reason = chosen.supports(problem, device)
    if reason is None and direction != "forward":
        reason = chosen.reason_against_backward(problem, device)
    return reason or matrix_too_large(chosen, problem, device)


def matrix_too_large(chosen: Implementation, problem: Problem, device: torch.device) -> str | None:
    """Those that store P are not tried where one matrix takes more than half the GPU's memory."""
    if device.type != "cuda" or chosen.forward_keeping is None:
        return None
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    needed = scores * getattr(torch, problem.dtype).itemsize
    if needed <= torch.cuda.get_device_properties(device).total_memory / 2:
        return None
    return f"would need {needed / 1e9:,.0f} GB for one N x N matrix; not tried"


# --- parts of P -------------------------------------------------------------------------------------


def one_row(inputs: Inputs, lse: Tensor) -> Work:
    """The middle query's row, all heads -> [batch, heads, 1, keys]."""
    q, k, _, scale, causal = inputs.forward
    index = torch.tensor([q.shape[2] // 2], device=q.device)
    return partial(recompute.rows, q, k, lse, index, scale, causal)


def one_column(inputs: Inputs, lse: Tensor) -> Work:
    """The middle key's column, all heads -> [batch, heads, queries, 1]."""
    q, k, _, scale, causal = inputs.forward
    index = torch.tensor([k.shape[2] // 2], device=q.device)
    return partial(recompute.columns, q, k, lse, index, scale, causal)


def product(inputs: Inputs, lse: Tensor) -> Work:
    """w^T P for a random w, all heads -> [batch, heads, keys]."""
    q, k, _, scale, causal = inputs.forward
    return partial(recompute.product, weights_of(inputs), q, k, lse, scale, causal)


def weights_of(inputs: Inputs) -> Tensor:
    """w for the product, float32 [batch, heads, queries]: a column of numbers already at hand."""
    return inputs.grad_output[..., 0].float().contiguous()


PARTS = {"one-row": one_row, "one-column": one_column, "product": product}


def log_sum_exp_of(inputs: Inputs) -> Tensor:
    """The log-sum-exp as a viewer has it, from the implementation that "auto" stands for."""
    name = choose(inputs.problem, inputs.q.device)
    return load(name).forward(*inputs.forward)[1]
