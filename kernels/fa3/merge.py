# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Put together what several programs found for the same queries, each from some of the keys."""

from __future__ import annotations

from kernels.tiles import head_pointer, store_tile, store_vector, tl, triton

MERGED_ROWS = 16
"""Queries of one program."""


@triton.jit(do_not_specialize=["whole", "share", "key_tiles", "tiles", "heads", "queries"])
def merge_kernel(
    part_ptr,
    part_lse_ptr,
    output_ptr,
    lse_ptr,
    output_strides,
    whole,
    share,
    key_tiles,
    tiles,
    heads,
    queries,
    TILE_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Outputs weighted by how much of the softmax each part holds: exp(its log-sum-exp)."""
    # step: Merge split keys
    split_tile = tl.program_id(0) // (TILE_ROWS // ROWS)
    inside = tl.program_id(0) % (TILE_ROWS // ROWS) * ROWS
    start = split_tile * key_tiles
    row = inside + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_D)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, BLOCK_D], tl.float32)
    for program in range(start // share, (start + key_tiles - 1) // share + 1):
        # A program's first part is of the tile in which its share begins.
        slot = 2 * program + (program * share < start).to(tl.int32)
        place = tl.cast(slot, tl.int64) * TILE_ROWS + row
        log2_sum = tl.load(part_lse_ptr + place)
        part = tl.load(part_ptr + place[:, None] * BLOCK_D + column[None, :])
        new_most = tl.maximum(most, log2_sum)
        before = tl.math.exp2(most - new_most)
        weight = tl.math.exp2(log2_sum - new_most)
        sums = sums * before[:, None] + part * weight[:, None]
        total = total * before + weight
        most = new_most
    tile = whole + split_tile
    batch_head = (tile // tiles).to(tl.int64)
    first = tile % tiles * TILE_ROWS + inside
    output_head = head_pointer(output_ptr, output_strides, batch_head // heads, batch_head % heads)
    store_tile(
        output_head, sums / total[:, None], first, queries, output_strides[2:],
        HEAD_DIM, ROWS, BLOCK_D, False,
    )  # fmt: skip
    log_sum_exp = (most + tl.math.log2(total)) * 0.6931471805599453
    store_vector(lse_ptr + batch_head * queries, log_sum_exp, first, queries, ROWS)
