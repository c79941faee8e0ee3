# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportIndexIssue=false, reportAssignmentType=false
"""One worker of the short kernel: 64 queries at a time against all keys of their head, in Gluon for Hopper.

One maximum, one sum, one product. The two workers of a program take turns at the exponentials, so that each has
the matrix units while the other does without.
"""

from __future__ import annotations

from typing import NamedTuple

from kernels.hopper import (
    FIRST_BARRIER,
    arrive_at_if,
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    parity,
    score_layout,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ROWS = gl.constexpr(64)
"""Queries of one worker: the rows of one wgmma."""

WORKERS = gl.constexpr(2)

THREADS = gl.constexpr(256)
"""Of both workers."""


class Stream(NamedTuple):
    """What is compiled in."""

    block_d: int
    pieces: tuple[int, ...]  # the widths that the keys of a head are cut into, powers of two
    tiles: int  # of ROWS queries that a unit has: a head, or one of the parts of a head
    parts: int
    stages: int  # units whose keys and values are in shared memory at once
    slots: int  # tiles of queries there
    causal: bool
    negative: bool  # the scale: then the lowest score weighs most
    close: bool  # launched while the kernel before is still at work


class Sizes(NamedTuple):
    """What the kernel is told as it starts."""

    units: int
    heads: int
    group: int
    queries: int
    keys: int


class Rings(NamedTuple):
    """Tiles in shared memory, and the barriers that say which are there and which are done with."""

    q: object
    k: object  # one ring for each piece
    v: object
    q_full: object
    q_empty: object
    k_full: object
    v_full: object
    empty: object  # of keys and values


@gluon.jit
def unit_at(index, sizes, C: gl.constexpr):
    """-> batch, head, the head that its keys come from, and its first tile of queries."""
    unit = gl.program_id(0) + index * gl.num_programs(0)
    batch_head = unit // C.parts
    head = batch_head % sizes.heads
    return batch_head // sizes.heads, head, head // sizes.group, unit % C.parts * C.tiles


@gluon.constexpr_function
def sum_of(pieces, count=None):
    """The width of the first `count` pieces, or of all."""
    return sum(pieces[:count])


@gluon.jit
def hide(scores, first, query_start, sizes, C: gl.constexpr):
    """The worst score for keys that a query does not see, of a piece that begins at key `first`."""
    LAYOUT: gl.constexpr = score_layout(scores.shape[1])
    hidden: gl.constexpr = float("inf") if C.negative else float("-inf")
    key = first + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    first_hidden = sizes.keys
    if C.causal:
        query = query_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
        first_hidden = gl.minimum(sizes.keys, query + 1 + sizes.keys - sizes.queries)[:, None]
    return gl.where(key[None, :] < first_hidden, scores, hidden)


@gluon.jit
def like(vector, LAYOUT: gl.constexpr):
    """A number for each row, as another product holds its rows: the same threads, so nothing moves."""
    return gl.convert_layout(vector, gl.SliceLayout(1, LAYOUT), assert_trivial=True)


@gluon.jit
def score(q, keys, stage, C: gl.constexpr):
    """Raw scores of one tile against all keys, on their way. -> a tuple, one for each piece"""
    scores = ()
    for i in gl.static_range(len(C.pieces)):
        k = keys[i].index(stage).reshape([C.pieces[i], C.block_d]).permute([1, 0])
        empty = gl.full([ROWS, C.pieces[i]], 0.0, gl.float32, score_layout(C.pieces[i]))
        scores += (warpgroup_mma(q, k, empty, use_acc=False, is_async=True),)
    return scores


@gluon.jit
def arrived(products, COUNT: gl.constexpr):
    """Wait for them; a wait for one thing answers with it, not with a tuple."""
    found = warpgroup_mma_wait(0, deps=products)
    return (found,) if COUNT == 1 else found


@gluon.jit
def highest(scores, query_start, sizes, scale_log2e, C: gl.constexpr):
    """-> the scores with what is not seen hidden, and the highest scaled score of each query."""
    O: gl.constexpr = score_layout(C.block_d)
    masked = ()
    top = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, O))
    for i in gl.static_range(len(C.pieces)):
        piece = scores[i]
        if C.causal or i == len(C.pieces) - 1:
            piece = hide(piece, sum_of(C.pieces, i), query_start, sizes, C)
        masked += (piece,)
        best = -gl.min(piece, 1) if C.negative else gl.max(piece, 1)
        top = gl.maximum(top, like(best, O))
    return masked, top * (-scale_log2e if C.negative else scale_log2e)


@gluon.jit
def weigh(
    scores, shift, values, stage, full, phase, scale_log2e, hand_over, other, C: gl.constexpr
):
    """-> the sum of weights times V, and the sum of the weights."""
    O: gl.constexpr = score_layout(C.block_d)
    output = gl.full([ROWS, C.block_d], 0.0, gl.float32, O)
    total = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, O))
    kept = ()
    for i in gl.static_range(len(C.pieces)):
        weights = gl.exp2(scores[i] * scale_log2e - like(shift, score_layout(C.pieces[i]))[:, None])
        total += like(gl.sum(weights, 1), O)
        packed = gl.convert_layout(weights.to(values[0].dtype), gl.DotOperandLayout(0, O, 2))
        if i == 0:
            mbarrier.wait(full, phase)
        v = values[i].index(stage).reshape([C.pieces[i], C.block_d])
        output = warpgroup_mma(packed, v, output, is_async=True)
        kept += (packed,)  # its registers are read until the product is there
    arrive_at_if(hand_over, FIRST_BARRIER + other, THREADS)
    kept = (output,) + kept  # noqa: RUF005  Gluon knows no *
    return warpgroup_mma_wait(0, deps=kept)[0], total


@gluon.jit
def take_turn(vector, condition, barrier):
    """Wait at a named barrier, if so; what is worked out of the vector is worked out afterwards."""
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.u32 p, $4, 0; @p bar.sync $6, 256; mov.f32 $0, $2; mov.f32 $1, $3; }",
        "=f,=f,f,f,r,r,r,r", [vector, condition.to(gl.int32), barrier],
        dtype=gl.float32, is_pure=False, pack=2,
    )  # fmt: skip


@gluon.jit
def consume(o_desc, lse_ptr, rings, sizes, scale_log2e, worker, C: gl.constexpr):
    """Attend for every second tile of queries, and write its output and log-sum-exp."""
    O: gl.constexpr = score_layout(C.block_d)
    units = gl.cdiv(sizes.units - gl.program_id(0), gl.num_programs(0))
    last_slot = -1
    steps = units * C.tiles
    for step in range(worker, steps, WORKERS):
        index = step // C.tiles
        stage = index % C.stages
        slot = step % C.slots
        batch, head, _, first = unit_at(index, sizes, C)
        query_start = (first + step % C.tiles) * ROWS
        tile = rings.q.index(slot)
        mbarrier.wait(rings.q_full.index(slot), parity(step, C.slots))
        mbarrier.wait(rings.k_full.index(stage), parity(index, C.stages))
        scores = score(tile.reshape([ROWS, C.block_d]), rings.k, stage, C)
        # By now the output before has left the slot that its queries came in.
        tma.store_wait(0)
        if last_slot >= 0:
            mbarrier.arrive(rings.q_empty.index(last_slot))
        last_slot = slot
        scores = arrived(scores, len(C.pieces))
        scores, top = highest(scores, query_start, sizes, scale_log2e, C)
        # A query that sees nothing stays at -inf, and -inf - -inf would be NaN.
        shift = gl.where(top == float("-inf"), 0.0, top) if C.causal else top
        shift = take_turn(shift, step > 0, FIRST_BARRIER + worker)
        output, total = weigh(
            scores, shift, rings.v, stage,
            rings.v_full.index(stage), parity(index, C.stages), scale_log2e,
            step + 1 < steps, 1 - worker, C,
        )  # fmt: skip
        mbarrier.arrive(rings.empty.index(stage))

        # Its sum is 0: its output is 0 and its log-sum-exp -inf.
        saw_nothing = total == 0.0
        total = gl.where(saw_nothing, 1.0, total)
        output = output * (1.0 / total)[:, None]
        tile.reshape([ROWS, C.block_d]).store(output.to(tile.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(o_desc, [batch, head, query_start, 0], tile)
        row = query_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, O))
        log2_sum = gl.where(saw_nothing, float("-inf"), top + gl.log2(total))
        start = lse_ptr + (batch * sizes.heads + head).to(gl.int64) * sizes.queries
        gl.store(start + row, log2_sum * 0.6931471805599453, mask=row < sizes.queries)
    tma.store_wait(0)
