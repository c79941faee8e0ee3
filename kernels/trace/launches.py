"""The launches of a walk, and the steps read off the pages that the kernels wrote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.implementation import Saved
from kernels.naive.tile_sizes import stored_columns
from kernels.tile_sizes import padded
from kernels.trace.bytes_so_far import Moved, watching
from kernels.trace.cut import Cut
from kernels.trace.steps import NAMES, Step

LOG_2 = math.log(2)


@dataclass(frozen=True)
class Walked:
    """What a walk left: [rows, dim] as stored, float32 [rows], and its steps."""

    output: Tensor
    log_sum_exp: Tensor
    steps: tuple[Step, ...]
    most_rise: float = 0.0  # in natural units; see `Walk`


def heads(*tensors: Tensor) -> list[Tensor]:
    """[tokens, dim] as the launchers want it."""
    return [tensor[None, None] for tensor in tensors]


def flash(cut: Cut, broken: str | None) -> Walked:
    """fa1, fa2 and the twin of fa3: pages of scores, output, maximum, sum and rescale factor."""
    if cut.implementation == "fa1":
        from kernels.fa1.forward import launch_forward
    elif cut.implementation == "fa2":
        from kernels.fa2.forward import launch_forward
    else:
        from kernels.fa3.twin import launch_forward

    pages = cut.empty_pages(cut.tiles.block_k + cut.block_width + 3)
    trace = pages, pages.shape[2], cut.query_start
    q, k, v = heads(cut.q, cut.k, cut.v)
    lazy: dict[str, float] = {}
    if cut.implementation == "fa3":
        from kernels.fa3.twin import MOST_RISE

        # A mistake shows best where all is rescaled.
        lazy = {"most_rise": 0.0 if broken else MOST_RISE}
    with watching(cut, [pages]) as moved:
        output, lse = launch_forward(q, k, v, cut.scale, cut.causal, trace, broken, **lazy)
    pages = pages[:, : cut.rows].cpu()
    steps = tuple(
        flash_step(cut, page, n, moved[n], broken == "tail-not-masked")
        for n, page in enumerate(pages)
    )
    rise = lazy.get("most_rise", 0.0) * LOG_2
    return Walked(output[0, 0].cpu(), lse[0, 0].cpu(), steps, rise)


def flash_step(cut: Cut, page: Tensor, n: int, moved: Moved, shows_padding: bool) -> Step:
    """One page, in natural units."""
    start, keys = cut.span(n)
    scores = page[:, : cut.tiles.block_k] * (abs(cut.scale) or 1.0)
    output = page[:, cut.tiles.block_k :][:, : cut.width]
    maximum, total, rescale = page[:, -3:].unbind(1)
    name = cut.implementation
    return Step(
        name=NAMES[name],
        phase="",
        key_start=start,
        keys=keys,
        scores=scores[:, :keys].clone(),
        running_max=maximum * LOG_2,
        running_sum=total.clone(),
        rescale=rescale.clone(),
        output=output.clone(),
        bytes_read=moved[0],
        bytes_written=moved[1],
        extra=padding(cut, scores, keys) if shows_padding else {},
    )


def padding(cut: Cut, scores: Tensor, keys: int) -> dict[str, Tensor]:
    """What the padded keys of the last tile scored, where there are some and nothing else hides them."""
    block = cut.tiles.block_k
    if cut.causal or keys == block:
        return {}
    if cut.implementation == "fa2":
        block = min(block, padded(keys))
    if cut.implementation == "naive":
        block = keys + stored_columns(cut.keys) - cut.keys
    return {"padding": scores[:, keys:block].clone()} if block > keys else {}


def backward(cut: Cut, grad_output: Tensor) -> Walked:
    """The pass of fa2's backward that owns the queries: pages of scores, weights, their gradients, and dQ."""
    from kernels.fa2.backward import launch_delta
    from kernels.fa2.backward_queries import launch_queries
    from kernels.fa2.forward import launch_forward
    from kernels.tiles import on_device_of

    q, k, v, grad = heads(cut.q, cut.k, cut.v, grad_output)
    block = cut.tiles.block_k
    # The forward pass of these rows, for its log-sum-exp; its own pages are not looked at.
    unread = cut.empty_pages(block + cut.block_width + 3)
    forward_trace = unread, unread.shape[2], cut.query_start
    with watching(cut, [unread]):
        output, lse = launch_forward(q, k, v, cut.scale, cut.causal, forward_trace)
        delta, grad_q = launch_delta(output, grad, None), torch.empty_like(q)
    saved = Saved(q, k, v, output, lse, q.new_empty(0), cut.scale, cut.causal)
    pages = cut.empty_pages(3 * block + cut.block_width)
    trace = pages, pages.shape[2], cut.query_start
    with watching(cut, [pages]) as moved, on_device_of(q):
        launch_queries(saved, grad, delta, grad_q, trace)
    pages, lse, delta = pages[:, : cut.rows].cpu(), lse[0, 0].cpu(), delta[0, 0].cpu()
    steps = tuple(backward_step(cut, p, n, moved[n], lse, delta) for n, p in enumerate(pages))
    return Walked(grad_q[0, 0].cpu(), lse, steps)


def backward_step(cut: Cut, page: Tensor, n: int, moved: Moved, lse: Tensor, delta: Tensor) -> Step:
    """One page of the backward pass."""
    start, keys = cut.span(n)
    scores, weights, grad_weights = (
        part[:, :keys].clone() for part in page[:, : 3 * cut.tiles.block_k].chunk(3, dim=1)
    )
    return Step(
        name=NAMES["fa2-backward"],
        phase="",
        key_start=start,
        keys=keys,
        scores=scores * cut.scale,
        running_max=lse,
        running_sum=torch.ones_like(lse),
        rescale=torch.ones_like(lse),
        output=page[:, 3 * cut.tiles.block_k :][:, : cut.width].clone(),
        bytes_read=moved[0],
        bytes_written=moved[1],
        extra={"weights": weights, "grad_weights": grad_weights, "delta": delta},
    )


def naive(cut: Cut, broken: str | None) -> Walked:
    """Three kernels: pages of scores; one page of maxima and sums; pages of weights and sums of values."""
    from kernels.naive.forward import launch_forward

    block = cut.tiles.block_k
    pairs, sums = cut.empty_pages(block), cut.empty_pages(block + cut.block_width)
    softmax = cut.empty_softmax_page()
    of_pairs, of_softmax, of_sums = (
        (pages, pages.shape[2], cut.query_start) for pages in (pairs, softmax, sums)
    )
    q, k, v = heads(cut.q, cut.k, cut.v)
    where = of_pairs, of_softmax, of_sums
    with watching(cut, [pairs, softmax, sums]) as moved:
        output, lse, _ = launch_forward(q, k, v, cut.scale, cut.causal, where, broken)
    written = NaivePages(*(pages[:, : cut.rows].cpu() for pages in (pairs, softmax, sums)))
    steps = naive_steps(cut, written, moved, broken == "tail-not-masked")
    return Walked(output[0, 0].cpu(), lse[0, 0].cpu(), steps)


class NaivePages(NamedTuple):
    """What the three kernels wrote, [pages, rows, columns]."""

    pairs: Tensor  # columns: scores, in natural units, not yet rounded
    softmax: Tensor  # one page: maximum, in base-2 units, and sum
    sums: Tensor  # weights, and the output so far


def naive_steps(
    cut: Cut, pages: NaivePages, moved: list[Moved], shows_padding: bool
) -> tuple[Step, ...]:
    """One step for each key tile of S, one for the softmax of whole rows, one for each key tile of P V."""
    spans, block = [cut.span(n) for n in range(cut.steps)], cut.tiles.block_k
    scores = [page[:, :keys].clone() for page, (_, keys) in zip(pages.pairs, spans, strict=True)]
    weights = [page[:, :keys].clone() for page, (_, keys) in zip(pages.sums, spans, strict=True)]
    row_max, row_sum = (pages.softmax[0] * torch.tensor([LOG_2, 1.0])).unbind(1)
    no_max, no_sum = torch.full_like(row_max, -torch.inf), torch.zeros_like(row_sum)
    nothing = torch.zeros(cut.rows, cut.width)
    found: list[Step] = []

    def add(phase: str, span: tuple[int, int], tile: Tensor, output: Tensor, **extra: Tensor):
        is_known = phase != "pairs"
        step = Step(
            name=NAMES[phase],
            phase=phase,
            key_start=span[0],
            keys=span[1],
            scores=tile,
            running_max=row_max if is_known else no_max,
            running_sum=row_sum if is_known else no_sum,
            rescale=torch.ones(cut.rows),
            output=output,
            bytes_read=moved[len(found)][0],
            bytes_written=moved[len(found)][1],
            extra=extra,
        )
        found.append(step)

    for n, span in enumerate(spans):
        extra = padding(cut, pages.pairs[n], span[1]) if shows_padding else {}
        add("pairs", span, scores[n], nothing, **extra)
    add("softmax", (0, cut.keys), torch.cat(scores, 1), nothing, weights=torch.cat(weights, 1))
    for n, span in enumerate(spans):
        output = pages.sums[n][:, block:][:, : cut.width].clone()
        add("sums", span, scores[n], output, weights=weights[n])
    return tuple(found)
