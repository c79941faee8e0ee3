# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportAssignmentType=false, reportOperatorIssue=false, reportPossiblyUnboundVariable=false
"""What a group of four warps does with its 64 keys: dK and dV, and its part of every tile of dQ.

S and P, dP and dS are computed transposed, [keys, queries]: P and dS are then the left operands of dV and dK
as they lie in registers, and nothing computed must be turned round. Only dS goes through shared memory, for dQ.
"""

from __future__ import annotations

from kernels.fa3.backward_order import visit_of
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


@gluon.constexpr_function
def pieces_of(head_dim, padded):
    """Where pieces begin, and their widths, powers of two, that make up a head: 96 is 64 and 32, not 128."""
    pieces, first, width = [], 0, padded
    while first < head_dim:
        while width > 16 and first + width > -(-head_dim // 16) * 16:
            width //= 2
        pieces.append((first, width))
        first += width
    return pieces


@gluon.jit
def start_scores(mine, theirs, HEAD_DIM: gl.constexpr):
    """S = K Q^T or dP = V dO^T of this group's keys and a tile of queries, in flight. [GROUP_KEYS, BLOCK_Q]"""
    BLOCK_Q: gl.constexpr = theirs.shape[0]
    pieces: gl.constexpr = pieces_of(HEAD_DIM, theirs.shape[1])
    scores = gl.zeros([GROUP_KEYS, BLOCK_Q], gl.float32, score_layout(BLOCK_Q))
    for i in gl.static_range(len(pieces)):
        left = mine.slice(pieces[i][0], pieces[i][1], dim=1)
        right = theirs.slice(pieces[i][0], pieces[i][1], dim=1).permute((1, 0))
        scores = warpgroup_mma(left, right, scores, use_acc=i > 0, is_async=True)
    return scores


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


@gluon.constexpr_function
def held_layout():
    """Of [many, 256]: each thread of a group has four numbers side by side of every other row."""
    return gl.BlockedLayout([1, 4], [1, 32], [2, 2], [1, 0])


@gluon.jit
def as_held(tile):
    """[64, width] as [width / 4, 256] in the order of threads, each one's numbers in fours.

    Stored so without a conflict or a gap; `in_place` of backward_edges turns the order back.
    """
    WIDTH: gl.constexpr = tile.shape[1]
    layout: gl.constexpr = held_layout()
    parts = tile.reshape([4, 2, 8, WIDTH // 8, 4, 2]).permute((3, 0, 2, 4, 1, 5))
    return gl.convert_layout(parts.reshape([WIDTH // 4, 256]), layout, assert_trivial=True)


@gluon.jit
def hand_over(grad_q, pieces, filled, emptied, step, GROUP: gl.constexpr):
    """Leave this group's part of the `step`-th tile of dQ to the warp that adds it."""
    mbarrier.wait(emptied.index(GROUP), (step & 1) ^ 1)
    pieces.index(GROUP).store(as_held(grad_q))
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
def all_keys(tiles, step):
    """The program's tile of K or V, [keys, head_dim], as this step reads it.

    There is one; that its place among `tiles` is always 0 the compiler does not know. It makes the descriptors of
    products anew in every step then: kept, they took some 30 registers of each thread, and half of them spilled.
    """
    return tiles.index(step >> 30).reshape([tiles.shape[3], tiles.shape[4]])


@gluon.jit
def weigh(
    k_all, v_tiles, q, grad_output, facts, step, query_start, first_key, queries, keys, scale_log2e,
    GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """P and dP of this group's keys and a tile of queries, both [GROUP_KEYS, BLOCK_Q]."""
    BLOCK_Q: gl.constexpr = q.shape[0]
    BLOCK_K: gl.constexpr = k_all.shape[0]
    scores = start_scores(k_all.slice(GROUP * GROUP_KEYS, GROUP_KEYS), q, HEAD_DIM)
    v = all_keys(v_tiles, step).slice(GROUP * GROUP_KEYS, GROUP_KEYS)
    grad_weights = start_scores(v, grad_output, HEAD_DIM)
    scores = warpgroup_mma_wait(1, deps=[scores])
    log_sum_exp = facts.slice(0, 1).load(score_layout(BLOCK_Q))
    weights = gl.exp2(scores * scale_log2e - log_sum_exp)
    if BLOCK_Q == BLOCK_K:  # ptxas moves this wait up, in front of the exponentials
        grad_weights = warpgroup_mma_wait(0, deps=[grad_weights])
    weights = hide(weights, query_start, first_key, queries, keys, CAUSAL)
    if BLOCK_Q < BLOCK_K:  # but not past the branch in `hide`; timed so at head_dim 128 only
        grad_weights = warpgroup_mma_wait(0, deps=[grad_weights])
    return weights, grad_weights


@gluon.jit
def one_query_tile(
    grads, k_tiles, v_tiles, rings, barriers, step, query_start, first_key, queries, keys, scale_log2e,
    FIRST: gl.constexpr, GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
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

    k_all = all_keys(k_tiles, step)
    mbarrier.wait(full.index(slot), phase)
    weights, grad_weights = weigh(
        k_all, v_tiles, q, grad_output, facts, step, query_start, first_key, queries, keys, scale_log2e,
        GROUP, HEAD_DIM, CAUSAL,
    )  # fmt: skip

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
    grad_k = warpgroup_mma(grad_scores, q, grad_k, is_async=True)
    if not FIRST:
        grad_q = warpgroup_mma_wait(1, deps=[grad_q])
        tell(READ, GROUP, (step - 1) & 1)
        hand_over(grad_q, grad_q_pieces, grad_q_filled, grad_q_emptied, step - 1, GROUP)
    grad_k, grad_scores = warpgroup_mma_wait(0, deps=[grad_k, grad_scores])
    mbarrier.arrive(empty.index(slot), count=1)
    return grad_k, grad_v


@gluon.jit
def put(base, stride, tile, room, first_row, rows, HEAD_DIM: gl.constexpr):
    """Write rows of one head, inside its edges, 16 bytes at a time, through `room` in shared memory.

    Rows begin at multiples of 16 bytes.
    """
    WIDTH: gl.constexpr = tile.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    room.store(tile.to(base.dtype.element_ty))
    tile = room.load(layout)
    row = first_row + gl.arange(0, tile.shape[0], gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    start = gl.multiple_of(base, 16) + row.to(gl.int64) * gl.multiple_of(stride, 8)
    gl.store(start + column, tile, mask=(row < rows) & (column < HEAD_DIM))


@gluon.jit
def put_part(room, tile):
    """Write the float32 sums of a part of the walk."""
    layout: gl.constexpr = held_layout()
    row = gl.arange(0, tile.shape[1] // 4, gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, 256, gl.SliceLayout(0, layout))[None, :]
    gl.store(gl.multiple_of(room, 16) + row * 256 + column, as_held(tile))


@gluon.jit
def work_on_keys(
    k_tiles, v_tiles, kv_full, rings, barriers, walk, outputs, first_key, queries, keys, scale, scale_log2e,
    GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Four warps, from the first tile of queries of the walk to the last. `first_key`: of both groups' tile."""
    BLOCK_Q: gl.constexpr = rings[0].shape[3]
    BLOCK_D: gl.constexpr = k_tiles.shape[4]
    other: gl.constexpr = 1 - GROUP
    total = walk[1]
    first_key += GROUP * GROUP_KEYS
    zeros = gl.zeros([GROUP_KEYS, BLOCK_D], gl.float32, score_layout(BLOCK_D))
    grads = (zeros, zeros)
    tell(READ, GROUP, 0)
    tell(READ, GROUP, 1)
    mbarrier.wait(kv_full, 0)
    _, _, tile = visit_of(0, walk)
    grads = one_query_tile(
        grads, k_tiles, v_tiles, rings, barriers, 0, tile * BLOCK_Q, first_key, queries, keys, scale_log2e,
        True, GROUP, HEAD_DIM, STAGES, CAUSAL,
    )  # fmt: skip
    for step in range(1, total):
        _, _, tile = visit_of(step, walk)
        grads = one_query_tile(
            grads, k_tiles, v_tiles, rings, barriers, step, tile * BLOCK_Q, first_key, queries, keys,
            scale_log2e, False, GROUP, HEAD_DIM, STAGES, CAUSAL,
        )  # fmt: skip
    ask(READ, other, total & 1)  # so that no arrival is left over
    ask(WRITTEN, other, (total - 1) & 1)
    last = start_grad_q(rings[3].index((total - 1) & 1), all_keys(k_tiles, 0), GROUP, BLOCK_Q)
    last = warpgroup_mma_wait(0, deps=[last])
    hand_over(last, rings[4], barriers[2], barriers[3], total - 1, GROUP)
    grad_k_head, grad_k_rows, grad_v_head, grad_v_rows, part, parts = outputs
    if parts == 1:
        # Only this group has read its half of V.
        room = all_keys(v_tiles, 0).slice(GROUP * GROUP_KEYS, GROUP_KEYS)
        put(grad_k_head, grad_k_rows, grads[0] * scale, room, first_key, keys, HEAD_DIM)
        put(grad_v_head, grad_v_rows, grads[1], room, first_key, keys, HEAD_DIM)
    else:
        put_part(part + GROUP * (GROUP_KEYS * BLOCK_D), grads[0] * scale)
        put_part(part + (2 + GROUP) * (GROUP_KEYS * BLOCK_D), grads[1])
