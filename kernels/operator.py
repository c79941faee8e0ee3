"""One torch.library operator and one autograd formula for every implementation.

The operator exists for torch.compile and for whoever else traces what torch does. Where nobody does, the door
calls `compute` itself, or `Differentiable`, which spares what the operator costs: more than a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from kernels.implementation import Implementation, Saved
from kernels.problem import Problem
from kernels.registry import choose, load
from kernels.repeat import kind_of, learn


def compute(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, implementation: str, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log-sum-exp, and what the backward pass needs besides (without elements unless `keep`).

    Raises:
        ValueError: the implementation cannot run this problem here; nothing else is tried in its place.
    """
    problem = Problem.of(q, k, causal)
    chosen = pick(problem, q.device, implementation)
    if problem.empty:
        no_keys = q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
        return torch.zeros_like(q), no_keys, empty_kept(chosen, q, k, keep)
    if keep and chosen.forward_keeping is not None:
        return chosen.forward_keeping(q, k, v, scale, causal)

    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return chosen.forward(q, k, v, scale, causal)

    output, log_sum_exp = learnt(chosen, forward, (q, k, v), implementation, scale, causal)
    return output, log_sum_exp, q.new_empty(0)


def learnt(
    chosen: Implementation, call: Callable, tensors: tuple[Tensor, ...], *settings: Hashable
) -> tuple[Tensor, ...]:
    """What the call answers to these tensors, by heart where that is known; see `kernels.repeat`."""
    if not chosen.repeatable:
        return call(*tensors)
    return learn(kind_of(tensors, call.__name__, *settings), call, tensors)


def pick(problem: Problem, device: torch.device, implementation: str) -> Implementation:
    """The implementation of this name, or the one that "auto" stands for, if it runs here."""
    if device.type != "cuda" or traced():
        return pick_now(problem, device, implementation)
    return pick_for_gpu(problem, device, implementation)


def pick_now(problem: Problem, device: torch.device, implementation: str) -> Implementation:
    """The same, worked out; sizes may be symbols of a compiler."""
    name = choose(problem, device) if implementation == "auto" else implementation
    chosen = load(name)
    reason = chosen.supports(problem, device)
    if reason is not None:
        raise ValueError(reason)
    return chosen


pick_for_gpu = lru_cache(maxsize=1024)(pick_now)
"""On a GPU that a tensor lies on nothing changes any more; on a CPU Triton's interpreter may come and go."""


def differentiable_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, implementation: str, keep: bool
) -> tuple[Tensor, Tensor]:
    """The same where torch is told how to differentiate it; `keep` where a gradient will be asked for."""
    if not torch.compiler.is_compiling():
        problem = Problem.of(q, k, causal)
        chosen = pick(problem, q.device, implementation)
        reason = chosen.reason_against_backward(problem, q.device)
        if reason is not None:
            raise ValueError(reason)
        if chosen.differentiable and not problem.empty:
            return chosen.forward(q, k, v, scale, causal)
    if traced():
        output, log_sum_exp, _ = attention_operator(q, k, v, scale, causal, implementation, keep)
        return output, log_sum_exp
    results = Differentiable.apply(q, k, v, scale, causal, implementation, keep)
    return results[0], results[1]


@torch.library.custom_op("flashlens::attention", mutates_args=())
def attention_operator(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, implementation: str, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """output, log_sum_exp, kept"""
    output, log_sum_exp, kept = compute(q, k, v, scale, causal, implementation, keep)
    return token_major(output), log_sum_exp.contiguous(), kept


@attention_operator.register_fake
def _(q, k, v, scale, causal, implementation, keep):
    chosen = pick_now(Problem.of(q, k, causal), q.device, implementation)
    log_sum_exp = q.new_empty(q.shape[:3], dtype=torch.float32)
    return empty_token_major(q), log_sum_exp, empty_kept(chosen, q, k, keep)


def differentiate(
    grad_output: Tensor,
    grad_log_sum_exp: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    output: Tensor,
    log_sum_exp: Tensor,
    kept: Tensor,
    scale: float,
    causal: bool,
    implementation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """grad_q, grad_k, grad_v"""
    problem = Problem.of(q, k, causal)
    chosen = pick(problem, q.device, implementation)
    reason = chosen.reason_against_backward(problem, q.device)
    if reason is not None or chosen.backward is None:
        reason = reason or f"torch differentiates {chosen.name} itself; call it uncompiled."
        raise ValueError(reason)
    if problem.empty:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    of_chosen = chosen.backward

    def backward(grad_output, q, k, v, output, log_sum_exp, kept, grad_log_sum_exp=None):
        saved = Saved(q, k, v, output, log_sum_exp, kept, scale, causal)
        grads = of_chosen(saved, grad_output, grad_log_sum_exp)
        return tuple(laid_out_like(g, model) for g, model in zip(grads, (q, k, v), strict=True))

    tensors = (grad_output, q, k, v, output, log_sum_exp, kept)
    if grad_log_sum_exp is not None:
        tensors += (grad_log_sum_exp,)
    grad_q, grad_k, grad_v = learnt(chosen, backward, tensors, implementation, scale, causal)
    return grad_q, grad_k, grad_v


backward_operator = torch.library.custom_op(
    "flashlens::attention_backward", differentiate, mutates_args=()
)


@backward_operator.register_fake
def _(grad_output, grad_log_sum_exp, q, k, v, *_rest):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def setup_context(ctx, inputs, output) -> None:
    q, k, v, scale, causal, implementation, _keep = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output)
    ctx.settings = (scale, causal, implementation)


def formula(ctx, grad_output, grad_log_sum_exp, _grad_kept):
    """The one autograd formula: hand what was saved to the implementation's own backward."""
    return formula_by(backward_operator, ctx, grad_output, grad_log_sum_exp)


def formula_by(
    backward: Callable, ctx, grad_output: Tensor | None, grad_log_sum_exp: Tensor | None
) -> tuple:
    """The same, through the operator or without it."""
    q, k, v, output, log_sum_exp, kept = ctx.saved_tensors
    if grad_output is None and grad_log_sum_exp is None:
        return None, None, None, None, None, None, None
    if grad_output is None:
        grad_output = torch.zeros_like(output)
    grads = backward(
        grad_output, grad_log_sum_exp, q, k, v, output, log_sum_exp, kept, *ctx.settings
    )
    return *grads, None, None, None, None


attention_operator.register_autograd(formula, setup_context=setup_context)


class Differentiable(torch.autograd.Function):
    """`compute` and the formula, where nobody traces: without the operators."""

    @staticmethod
    def forward(ctx, *inputs) -> tuple[Tensor, Tensor, Tensor]:
        # By itself torch binds the arguments anew for each call of setup_context, which takes longer than this.
        results = compute(*inputs)
        setup_context(ctx, inputs, results)
        return results

    @staticmethod
    def backward(ctx, *grad_outputs):
        # Where gradients are still on a second derivative is wanted, which the operator refuses.
        operator = torch.is_grad_enabled() or traced()
        return formula_by(backward_operator if operator else differentiate, ctx, *grad_outputs[:2])


def traced() -> bool:
    """Whether somebody looks on who has to see operators, not what is in them."""
    return torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


# --- layouts: what the operator returns must be laid out as its fake twin says ----------------------


def empty_kept(chosen: Implementation, q: Tensor, k: Tensor, keep: bool) -> Tensor:
    """`kept` before anything is written to it; without elements where nothing is kept."""
    if keep and chosen.empty_kept is not None:
        return chosen.empty_kept(q, k)
    return q.new_empty(0)


def empty_token_major(q: Tensor) -> Tensor:
    """Like q, laid out [batch, queries, heads, head_dim], so that joining the heads costs no copy."""
    batch, heads, queries, head_dim = q.shape
    return q.new_empty(batch, queries, heads, head_dim).transpose(1, 2)


def token_major(tensor: Tensor) -> Tensor:
    """The same values in that layout; copied only where they are not."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def laid_out_like(tensor: Tensor, model: Tensor) -> Tensor:
    """The same values, laid out as torch.empty_like(model) is; copied only where they are not."""
    wanted = torch.empty_like(model, device="meta").stride()
    if all(s == w or n == 1 for s, w, n in zip(tensor.stride(), wanted, model.shape, strict=True)):
        return tensor
    return torch.empty_like(model).copy_(tensor)
