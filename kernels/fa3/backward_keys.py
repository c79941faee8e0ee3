# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportAssignmentType=false, reportOperatorIssue=false, reportPossiblyUnboundVariable=false
"""What a group of four warps does with its 64 keys: dK and dV, and its part of every tile of dQ.

S and P, dP and dS are computed transposed, [keys, queries]: P and dS are then the left operands of dV and dK
as they lie in registers, and nothing computed must be turned round. Only dS goes through shared memory, for dQ.
"""

from __future__ import annotations

from kernels.fa3.backward_order import visit_of
from kernels.fa3.backward_turns import PIECE_ROWS, PIECE_WIDTH
from kernels.hopper import (
    arrive_at,
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    parity,
    score_layout,
    wait_at,
    warpgroup_mma,
    warpgroup_mma_wait,
)

GROUP_KEYS = gl.constexpr(64)
WRITTEN = gl.constexpr(8)
"""Named barriers 8 to 11: a group has written its half of a tile of dS, one of two that lie side by side."""
READ = gl.constexpr(12)
"""Named barriers 12 to 15: a group has read a tile of dS."""


@gluon.jit
def tell(WHAT: gl.constexpr, GROUP: gl.constexpr, tile):
    """This group has done it with this tile."""
    arrive_at(WHAT + GROUP * 2 + tile, 256)


@gluon.jit
def ask(WHAT: gl.constexpr, GROUP: gl.constexpr, tile):
    """Wait until that group has done it with this tile."""
    wait_at(WHAT + GROUP * 2 + tile, 256)


@gluon.jit
def start_scores(mine, theirs):
    """S = K Q^T or dP = V dO^T of this group's keys and a tile of queries, in flight. [GROUP_KEYS, BLOCK_Q]"""
    BLOCK_Q: gl.constexpr = theirs.shape[0]
    nothing = gl.zeros([GROUP_KEYS, BLOCK_Q], gl.float32, score_layout(BLOCK_Q))
    return warpgroup_mma(mine, theirs.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def start_grad_q(grad_scores, k, GROUP: gl.constexpr, BLOCK_Q: gl.constexpr):
    """This group's part of dQ = dS K, in flight: 64 of 128 queries, or 64 of 128 dimensions. [64, 64]"""
    nothing = gl.zeros([64, 64], gl.float32, score_layout(64))
    if BLOCK_Q == 128:
        mine = grad_scores.slice(GROUP * 64, 64, dim=1).permute((1, 0))
        grad_q = warpgroup_mma(mine, k, nothing, use_acc=False, is_async=True)
    else:
        mine = k.slice(GROUP * 64, 64, dim=1)
        turned = grad_scores.permute((1, 0))
        grad_q = warpgroup_mma(turned, mine, nothing, use_acc=False, is_async=True)
    return grad_q


@gluon.jit
def hide(weights, query_start, first_key, queries, keys, CAUSAL: gl.constexpr):
    """0 for a key that is not there, or lies behind what the query may see. [GROUP_KEYS, BLOCK_Q]"""
    layout: gl.constexpr = weights.type.layout
    hidden = first_key + GROUP_KEYS > keys
    if CAUSAL:
        hidden = hidden | (query_start + keys - queries < first_key + GROUP_KEYS - 1)
    if hidden:
        key = first_key + gl.arange(0, weights.shape[0], gl.SliceLayout(1, layout))
        seen = (key < keys)[:, None]
        if CAUSAL:
            query = query_start + gl.arange(0, weights.shape[1], gl.SliceLayout(0, layout))
            seen = seen & (key[:, None] <= (query + keys - queries)[None, :])
        weights = gl.where(seen, weights, 0.0)
    return weights


@gluon.jit
def hand_over(grad_q, pieces, filled, emptied, step, GROUP: gl.constexpr):
    """Leave this group's part of the `step`-th tile of dQ to the warp that adds it.

    The numbers lie in the order of threads, each one's in fours: stored and added without a conflict or a gap.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [2, 2], [1, 0])
    parts = grad_q.reshape([4, 2, 8, 8, 4, 2]).permute((3, 0, 2, 4, 1, 5))
    piece = gl.convert_layout(parts.reshape([PIECE_ROWS, PIECE_WIDTH]), layout, assert_trivial=True)
    mbarrier.wait(emptied.index(GROUP), (step & 1) ^ 1)
    pieces.index(GROUP).store(piece)
    fence_async_shared()
    mbarrier.arrive(filled.index(GROUP), count=1)


@gluon.jit
def exchange(grad_scores, grad_scores_tiles, step, GROUP: gl.constexpr):
    """Write this group's half of a tile of dS, where the other has read what lay there two tiles before."""
    ask(READ, 1 - GROUP, step & 1)
    tile = grad_scores_tiles.index(step & 1)
    tile.slice(GROUP * GROUP_KEYS, GROUP_KEYS).store(grad_scores)
    fence_async_shared()
    tell(WRITTEN, GROUP, step & 1)


@gluon.jit
def one_query_tile(
    grads, k, v, k_all, rings, barriers, step, query_start, first_key, queries, keys, scale_log2e,
    FIRST: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """dK and dV of this tile, and dQ of the one before. -> (dK, dV)

    dQ comes a tile late: by then the other group has written its half of dS, and neither waits for the other.
    One group's products run while the other takes exponentials.
    """
    grad_k, grad_v = grads
    q_ring, grad_output_ring, facts_ring, grad_scores_tiles, grad_q_pieces = rings
    full, empty, grad_q_filled, grad_q_emptied = barriers
    BLOCK_Q: gl.constexpr = q_ring.shape[3]
    BLOCK_D: gl.constexpr = q_ring.shape[4]
    layout: gl.constexpr = score_layout(BLOCK_Q)
    operand: gl.constexpr = gl.DotOperandLayout(0, score_layout(BLOCK_D), 2)
    slot, phase = step % STAGES, parity(step, STAGES)
    q = q_ring.index(slot).reshape([BLOCK_Q, BLOCK_D])
    grad_output = grad_output_ring.index(slot).reshape([BLOCK_Q, BLOCK_D])
    facts = facts_ring.index(slot)

    mbarrier.wait(full.index(slot), phase)
    scores = start_scores(k, q)
    mbarrier.wait(full.index(STAGES + slot), phase)
    grad_weights = start_scores(v, grad_output)
    scores = warpgroup_mma_wait(1, deps=[scores])
    weights = gl.exp2(scores * scale_log2e - facts.slice(0, 1).load(layout))
    grad_weights = warpgroup_mma_wait(0, deps=[grad_weights])
    weights = hide(weights, query_start, first_key, queries, keys, CAUSAL)

    # step: Gradients of K and V
    # What is handed through a wait keeps its registers until the product has read them.
    weights_half = gl.convert_layout(weights.to(q_ring.dtype), operand)
    grad_v = warpgroup_mma(weights_half, grad_output, grad_v, is_async=True)
    grad_scores = weights * (grad_weights - facts.slice(1, 1).load(layout))
    grad_scores = grad_scores.to(q_ring.dtype)
    exchange(grad_scores, grad_scores_tiles, step, GROUP)
    grad_scores = gl.convert_layout(grad_scores, operand)
    if FIRST:
        grad_v, weights_half = warpgroup_mma_wait(0, deps=[grad_v, weights_half])
    else:
        ask(WRITTEN, 1 - GROUP, (step - 1) & 1)
        grad_q = start_grad_q(grad_scores_tiles.index((step - 1) & 1), k_all, GROUP, BLOCK_Q)
        grad_v, weights_half = warpgroup_mma_wait(1, deps=[grad_v, weights_half])
    mbarrier.arrive(empty.index(STAGES + slot), count=1)
    grad_k = warpgroup_mma(grad_scores, q, grad_k, is_async=True)
    if not FIRST:
        grad_q = warpgroup_mma_wait(1, deps=[grad_q])
        tell(READ, GROUP, (step - 1) & 1)
        hand_over(grad_q, grad_q_pieces, grad_q_filled, grad_q_emptied, step - 1, GROUP)
    grad_k, grad_scores = warpgroup_mma_wait(0, deps=[grad_k, grad_scores])
    mbarrier.arrive(empty.index(slot), count=1)
    return grad_k, grad_v


@gluon.jit
def put(base, stride, tile, first_row, rows, HEAD_DIM: gl.constexpr):
    """Write rows of one head, inside its edges, 16 bytes at a time. Rows begin at multiples of 16 bytes."""
    WIDTH: gl.constexpr = tile.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    tile = gl.convert_layout(tile.to(base.dtype.element_ty), layout)
    row = first_row + gl.arange(0, tile.shape[0], gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    start = gl.multiple_of(base, 16) + row.to(gl.int64) * gl.multiple_of(stride, 8)
    gl.store(start + column, tile, mask=(row < rows) & (column < HEAD_DIM))


@gluon.jit
def work_on_keys(
    k_tile, v_tile, kv_full, rings, barriers, walk, outputs, first_key, queries, keys, scale, scale_log2e,
    GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Four warps, from the first tile of queries of the walk to the last. `first_key`: of both groups' tile."""
    BLOCK_Q: gl.constexpr = rings[0].shape[3]
    BLOCK_D: gl.constexpr = k_tile.shape[3]
    other: gl.constexpr = 1 - GROUP
    total = walk[1]
    first_key += GROUP * GROUP_KEYS
    k_all = k_tile.reshape([k_tile.shape[2], BLOCK_D])
    k = k_all.slice(GROUP * GROUP_KEYS, GROUP_KEYS)
    v = v_tile.reshape([k_tile.shape[2], BLOCK_D]).slice(GROUP * GROUP_KEYS, GROUP_KEYS)
    zeros = gl.zeros([GROUP_KEYS, BLOCK_D], gl.float32, score_layout(BLOCK_D))
    grads = (zeros, zeros)
    tell(READ, GROUP, 0)
    tell(READ, GROUP, 1)
    mbarrier.wait(kv_full, 0)
    _, _, tile = visit_of(0, walk)
    grads = one_query_tile(
        grads, k, v, k_all, rings, barriers, 0, tile * BLOCK_Q, first_key, queries, keys, scale_log2e,
        True, GROUP, STAGES, CAUSAL,
    )  # fmt: skip
    for step in range(1, total):
        _, _, tile = visit_of(step, walk)
        grads = one_query_tile(
            grads, k, v, k_all, rings, barriers, step, tile * BLOCK_Q, first_key, queries, keys,
            scale_log2e, False, GROUP, STAGES, CAUSAL,
        )  # fmt: skip
    ask(READ, other, total & 1)  # so that no arrival is left over
    ask(WRITTEN, other, (total - 1) & 1)
    last = start_grad_q(rings[3].index((total - 1) & 1), k_all, GROUP, BLOCK_Q)
    last = warpgroup_mma_wait(0, deps=[last])
    hand_over(last, rings[4], barriers[2], barriers[3], total - 1, GROUP)
    grad_k_head, grad_k_strides, grad_v_head, grad_v_strides = outputs
    put(grad_k_head, grad_k_strides, grads[0] * scale, first_key, keys, HEAD_DIM)
    put(grad_v_head, grad_v_strides, grads[1], first_key, keys, HEAD_DIM)
