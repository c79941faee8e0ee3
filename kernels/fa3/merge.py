# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Put together what several programs found for the same queries, each from some of the keys."""

from __future__ import annotations

from kernels.tiles import tl, triton

WARPS, REGISTERS = 4, 96
"""Of one program: five find room on a multiprocessor at once."""
MERGED_ROWS = {64: 8, 128: 4, 256: 2}
"""Padded head_dim -> queries of one program, which has all parts of their sums in registers."""


@triton.jit(
    do_not_specialize=["whole", "share", "key_tiles", "tiles", "heads", "queries"],
    do_not_specialize_on_alignment=["part_ptr", "part_lse_ptr", "output_ptr", "lse_ptr"],
)
def merge_kernel(
    part_ptr,
    part_lse_ptr,
    output_ptr,
    lse_ptr,
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
    MOST_PARTS: tl.constexpr,
):
    """Outputs weighted by how much of the softmax each part holds: exp(its log-sum-exp).

    The output lies [batch, queries, heads, head_dim]; whole, share: see `schedule.Plan`.
    """
    # step: Merge split keys
    split_tile = tl.program_id(0) // (TILE_ROWS // ROWS)
    inside = tl.program_id(0) % (TILE_ROWS // ROWS) * ROWS
    start = split_tile * key_tiles
    first = start // share
    last = (start + key_tiles - 1) // share
    row = inside + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_D)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    for i in tl.static_range(MOST_PARTS):
        place = place_of_part(first + i, share, start, TILE_ROWS) + row
        log2_sum = tl.load(part_lse_ptr + place, mask=first + i <= last, other=float("-inf"))
        most = tl.maximum(most, log2_sum)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, BLOCK_D], tl.float32)
    for i in tl.static_range(MOST_PARTS):
        place = place_of_part(first + i, share, start, TILE_ROWS)
        there = first + i <= last
        log2_sum = tl.load(part_lse_ptr + place + row, mask=there, other=float("-inf"))
        # A launch does not look at addresses; that these begin at 16 bytes lets the compiler move more at once.
        part = tl.multiple_of(part_ptr + place.to(tl.int64) * BLOCK_D, 16)
        part = tl.load(part + row[:, None] * BLOCK_D + column[None, :], mask=there, other=0.0)
        weight = tl.math.exp2(log2_sum - most)
        sums += part * weight[:, None]
        total += weight
    tile = whole + split_tile
    batch_head = (tile // tiles).to(tl.int64)
    query = tile % tiles * TILE_ROWS + row
    first_token = batch_head // heads * queries * heads + batch_head % heads
    output = tl.multiple_of(output_ptr + first_token * HEAD_DIM, 16)
    output += query.to(tl.int64)[:, None] * heads * HEAD_DIM + column[None, :]
    mask = query < queries
    merged = (sums / total[:, None]).to(output_ptr.dtype.element_ty)
    tl.store(output, merged, mask=mask[:, None] & (column < HEAD_DIM)[None, :])
    log_sum_exp = (most + tl.math.log2(total)) * 0.6931471805599453
    tl.store(lse_ptr + batch_head * queries + query, log_sum_exp, mask=mask)


@triton.jit
def place_of_part(program, share, start, TILE_ROWS: tl.constexpr):
    """The first row of a program's part: its first part is of the tile in which its share begins."""
    return (2 * program + (program * share < start).to(tl.int32)) * TILE_ROWS
