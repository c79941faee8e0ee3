# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportIndexIssue=false, reportAssignmentType=false
"""Attention over few keys for many heads, in Gluon for Hopper: heads stream past the multiprocessors.

A program is one producer warp, which brings the keys and values of the next head while two warpgroups, the
workers of `short_worker`, attend to those of this one.
"""

from __future__ import annotations

from kernels.fa3.short_worker import ROWS, Rings, consume, sum_of, unit_at
from kernels.hopper import fence_async_shared, gl, gluon, mbarrier, parity, tma

REGISTERS = gl.constexpr(240)
"""Of a worker's thread: scores against 272 keys take 136 of them."""


@gluon.jit
def produce(q_desc, k_descs, v_descs, rings, sizes, C: gl.constexpr):
    """Bring the queries, keys and values of unit after unit."""
    step = 0  # counts tiles of queries
    for index in range(gl.cdiv(sizes.units - gl.program_id(0), gl.num_programs(0))):
        batch, head, kv_head, first = unit_at(index, sizes, C)
        stage = index % C.stages
        for tile in range(C.tiles):
            slot = step % C.slots
            full = rings.q_full.index(slot)
            mbarrier.wait(rings.q_empty.index(slot), parity(step, C.slots) ^ 1)
            mbarrier.expect(full, ROWS * C.block_d * 2)
            tma.async_copy_global_to_shared(
                q_desc, [batch, head, (first + tile) * ROWS, 0], full, rings.q.index(slot)
            )
            step += 1
            if tile == 0:
                mbarrier.wait(rings.empty.index(stage), parity(index, C.stages) ^ 1)
                bring(k_descs, rings.k, rings.k_full, stage, batch, kv_head, C)
                bring(v_descs, rings.v, rings.v_full, stage, batch, kv_head, C)


@gluon.jit
def bring(descs, tiles, full, stage, batch, head, C: gl.constexpr):
    """All keys, or values, of one head."""
    mbarrier.expect(full.index(stage), sum_of(C.pieces) * C.block_d * 2)
    for i in gl.static_range(len(C.pieces)):
        tma.async_copy_global_to_shared(
            descs[i], [batch, head, sum_of(C.pieces, i), 0], full.index(stage),
            tiles[i].index(stage),
        )  # fmt: skip


@gluon.jit
def ring(tile_desc, STAGES: gl.constexpr, WIDTH: gl.constexpr, C: gl.constexpr):
    return gl.allocate_shared_memory(
        tile_desc.dtype, [STAGES, 1, 1, WIDTH, C.block_d], tile_desc.layout
    )


@gluon.jit
def piece_rings(descs, C: gl.constexpr):
    """-> a tuple of rings, one for each piece."""
    rings = ()
    for i in gl.static_range(len(C.pieces)):
        rings += (ring(descs[i], C.stages, C.pieces[i], C),)
    return rings


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT mbarriers, each of which ARRIVALS arrivals turn over."""
    bars = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(bars.index(i), count=ARRIVALS)
    return bars


@gluon.jit
def wait_for_the_kernel_before():
    """Let the next kernel be launched, and wait until what the last one wrote can be read."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u32 $0, 0;", "=r", [],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["sizes", "scale_log2e"])
def stream_kernel(
    q_desc, k_a, k_b, k_c, v_a, v_b, v_c, o_desc, lse_ptr, sizes, scale_log2e,
    C: gl.constexpr,
):  # fmt: skip
    """Programs take units round and round: (program, program + programs, ...)."""
    k_descs = (k_a, k_b, k_c)
    v_descs = (v_a, v_b, v_c)
    rings = Rings(
        ring(q_desc, C.slots, ROWS, C), piece_rings(k_descs, C), piece_rings(v_descs, C),
        barriers(C.slots, 1), barriers(C.slots, 1),
        barriers(C.stages, 1), barriers(C.stages, 1), barriers(C.stages, C.tiles),
    )  # fmt: skip
    fence_async_shared()
    if C.close:
        wait_for_the_kernel_before()
    gl.warp_specialize(
        [
            (consume, (o_desc, lse_ptr, rings, sizes, scale_log2e, 0, C)),
            (consume, (o_desc, lse_ptr, rings, sizes, scale_log2e, 1, C)),
            (produce, (q_desc, k_descs, v_descs, rings, sizes, C)),
        ],
        [4, 1],
        [REGISTERS, 24],
    )
