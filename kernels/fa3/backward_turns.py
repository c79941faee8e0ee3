# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportOptionalMemberAccess=false
"""The warp that adds tiles of dQ to memory, each when its turn has come.

Between two additions to one place stand: the wait until TMA has made the first, which ends with a fence between
the proxies of its own; a counter raised with release; the counter read with acquire; a fence between the proxies,
for global memory; and the second. So one happens before the other in the memory model of PTX (PTX ISA, "Async
proxy" and "Memory Consistency Model").
"""

from __future__ import annotations

from triton._C.libtriton import ir
from triton.experimental.gluon.language._core import builtin

from kernels.fa3.backward_order import turn, visit_of
from kernels.hopper import gl, gluon, mbarrier, tma

PIECE_ROWS = gl.constexpr(16)
PIECE_WIDTH = gl.constexpr(256)
"""A piece of dQ, 64 x 64 numbers in the order in which threads hold them, as TMA sees it."""


@builtin
def start_adding(descriptor, place, piece, _semantic=None):
    """Add a piece in shared memory to memory, by TMA. Gluon has the copy but no name for this operation.

    Its numbers are added in no order: that of two pieces for one place is for the caller to keep.
    """
    place = _semantic._convert_to_ir_values(place, require_i64=False)
    add = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(add, descriptor.handle, place, piece.handle)


@gluon.jit
def wait_for_turn(place, before):
    """Until `before` key tiles have added here; what they added is seen then."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred early;
        .reg .u32 seen;
        AGAIN:
        ld.acquire.gpu.global.u32 seen, [$1];
        setp.ne.u32 early, seen, $2;
        @early bra AGAIN;
        mov.u32 $0, seen;
        }""",
        "=r,l,r", [place, before], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def pass_turn_on(place):
    """Wait until what TMA adds is there; whoever sees the count sees it too."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred first;
        .reg .u32 lane;
        cp.async.bulk.wait_group 0;
        bar.warp.sync 0xffffffff;
        mov.u32 lane, %laneid;
        setp.eq.u32 first, lane, 0;
        @first red.release.gpu.global.add.u32 [$1], 1;
        mov.u32 $0, lane;
        }""",
        "=r,l", [place], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def fence_async_global():
    """What TMA does to global memory from here on comes after what this thread has seen there.

    For all of memory, `fence.proxy.async` without a space, it would wait for the whole GPU twice: 12 % at 128.
    """
    gl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def count_at(place):
    """How many have added here; what they added is seen."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l", [place],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def add_in_turn(
    sums_desc, turns_ptr, piece, filled, emptied, first_row, query_tiles, queries, keys,
    key_tile, first_tile, last_tile, walk,
    GROUP: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr,
    LOOK_AHEAD: gl.constexpr,
):  # fmt: skip
    """Add one group's pieces of dQ, tile after tile of the walk.

    `first_row`: batch * heads + head of the first head of the group that shares K and V. LOOK_AHEAD: ask for the
    next turn while this piece is added. That it has come is likely only where neighbours begin two tiles apart.
    """
    total = walk[1]
    seen = -1
    for step in range(total):
        visit, member, tile = visit_of(step, walk)
        place = ((first_row + member) * query_tiles + tile) * 2 + GROUP
        before = turn(
            visit, tile, key_tile, first_tile, last_tile, total, queries, keys,
            BLOCK_Q, BLOCK_K, CAUSAL,
        )  # fmt: skip
        # step: Gradient of Q
        if seen != before:
            wait_for_turn(turns_ptr + place, before)
        fence_async_global()
        mbarrier.wait(filled, step & 1)
        if before == 0:  # so nobody needs to set the sums to zero
            tma.async_copy_shared_to_global(sums_desc, [place * PIECE_ROWS, 0], piece)
        else:
            start_adding(sums_desc, [place * PIECE_ROWS, 0], piece)
        tma.store_wait(0)  # until it is read; that it is added takes longer
        mbarrier.arrive(emptied, count=1)
        if LOOK_AHEAD:
            # Behind the last tile this asks about the first: harmless.
            _, member, tile = visit_of(step + 1, walk)
            seen = count_at(turns_ptr + ((first_row + member) * query_tiles + tile) * 2 + GROUP)
        pass_turn_on(turns_ptr + place)
