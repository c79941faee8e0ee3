"""The FlashAttention packages, played by eager attention: their names and order of arguments, our results."""

from __future__ import annotations

import math
from types import ModuleType

import torch

from kernels import reference
from kernels.implementation import Saved
from kernels.peers import adapt
from kernels.registry import load


def eager_kernel(given: adapt.Given, saved: Saved, scale: float):
    """A backward kernel that knows nothing of the log-sum-exp's gradient; it takes P from the lse alone."""
    assert scale > 0
    weights = torch.exp(
        reference.scores(given.q, given.k, scale, saved.causal) - saved.log_sum_exp.unsqueeze(-1)
    ).nan_to_num(0.0)
    again = Saved(
        given.q, given.k, given.v, given.output, saved.log_sum_exp, weights.float(), scale, False
    )
    return load("eager").backward(again, given.grad_output, None)


def heads_first(*tensors):
    return [t.transpose(1, 2) for t in tensors]


def play_forward(q, k, v, scale, causal, saw_nothing):
    """What each package gives for [batch, tokens, heads, head_dim]."""
    assert scale > 0
    output, lse = load("eager").forward(*heads_first(q, k, v), scale, causal)
    return output.transpose(1, 2), lse.masked_fill(torch.isneginf(lse), saw_nothing)


def play_backward(tensors, lse, scale, causal, grad_lse=None):
    grad_output, q, k, v, output = heads_first(*tensors)
    saved = Saved(q, k, v, output, lse, q.new_empty(0), scale, causal)
    given = adapt.Given(grad_output, q, k, v, output)
    if grad_lse is None:
        return heads_first(*eager_kernel(given, saved, scale))
    whole = load("eager").forward_keeping(q, k, v, scale, causal)
    kept = Saved(q, k, v, output, lse, whole[2], scale, causal)
    return heads_first(*load("eager").backward(kept, grad_output, grad_lse))


def module(name: str, **attributes) -> ModuleType:
    found = ModuleType(name)
    vars(found).update(attributes)
    return found


def flash_attn_2() -> list[ModuleType]:
    """The parts of flash-attn 2.8 that are called, with its names and order of arguments."""

    def flash_attn_func(
        q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, return_attn_probs=False
    ):
        assert return_attn_probs
        return *play_forward(q, k, v, softmax_scale, causal, math.inf), None

    def _flash_attn_backward(
        dout, q, k, v, out, softmax_lse, dq, dk, dv,
        dropout_p, softmax_scale, causal, window_size_left, window_size_right,
        softcap, alibi_slopes, deterministic, rng_state=None,
    ):  # fmt: skip
        assert (dropout_p, window_size_left, window_size_right, softcap) == (0.0, -1, -1, 0.0)
        assert not torch.isneginf(softmax_lse).any()
        found = play_backward((dout, q, k, v, out), softmax_lse, softmax_scale, causal)
        for target, gradient in zip((dq, dk, dv), found, strict=True):
            target.copy_(gradient)

    interface = module("flash_attn.flash_attn_interface", _flash_attn_backward=_flash_attn_backward)
    return [module("flash_attn", flash_attn_func=flash_attn_func, __path__=[]), interface]


def flash_attn_3() -> list[ModuleType]:
    """The parts of flash_attn_3 that are called, with its names and order of arguments."""

    def flash_attn_func(q, k, v, softmax_scale=None, causal=False, return_attn_probs=False):
        assert return_attn_probs
        return play_forward(q, k, v, softmax_scale, causal, -math.inf)

    def _flash_attn_backward(
        dout, q, k, v, out, softmax_lse,
        cu_seqlens_q=None, cu_seqlens_k=None, sequed_q=None, sequed_k=None,
        max_seqlen_q=None, max_seqlen_k=None,
        dq=None, dk=None, dv=None, softmax_scale=None, is_causal=False,
    ):  # fmt: skip
        found = play_backward((dout, q, k, v, out), softmax_lse, softmax_scale, is_causal)
        for target, gradient in zip((dq, dk, dv), found, strict=True):
            target.copy_(gradient)

    return [
        module(
            "flash_attn_interface",
            flash_attn_func=flash_attn_func,
            _flash_attn_backward=_flash_attn_backward,
        )
    ]


def flash_attn_4() -> list[ModuleType]:
    """The parts of flash-attn-4 4.0.0b36 that are called, with its names and order of arguments."""

    def flash_attn_func(q, k, v, softmax_scale=None, causal=False, return_lse=False):
        assert return_lse
        return play_forward(q, k, v, softmax_scale, causal, -math.inf)

    def _flash_attn_bwd(q, k, v, out, dout, lse, softmax_scale=None, causal=False, dlse=None):
        return play_backward((dout, q, k, v, out), lse, softmax_scale, causal, dlse)

    return [
        module("flash_attn", __path__=[]),
        module("flash_attn.cute", flash_attn_func=flash_attn_func, __path__=[]),
        module("flash_attn.cute.interface", _flash_attn_bwd=_flash_attn_bwd),
    ]


PLAYED = {"flash-attn-2": flash_attn_2, "flash-attn-3": flash_attn_3, "flash-attn-4": flash_attn_4}
