"""The bytes of each launch, from the loops of our kernels: which tiles meet, and what each meeting moves.

Written by hand beside the kernels, and never by running them; `counted` runs them, and a test holds the two
together to the byte. Masked tails move nothing.
"""

from __future__ import annotations

from kernels.fa1 import tile_sizes as fa1_tiles
from kernels.fa2 import tile_sizes as fa2_tiles
from kernels.naive import tile_sizes as naive_tiles
from kernels.traffic import loops_fa3, loops_fa3_backward
from kernels.traffic.ledger import KernelTraffic
from kernels.traffic.sizes import FLOAT32, Sizes, covered, keys_read, queries_read, tiles_in

# --- FlashAttention-2 -------------------------------------------------------------------------------


def fa2_forward(sizes: Sizes) -> list[KernelTraffic]:
    """Q once, K and V once for each tile of queries; O and the log-sum-exp once."""
    seen = keys_read(sizes, sizes.tiles(fa2_tiles.FORWARD))
    return [
        KernelTraffic(
            "forward_kernel",
            bytes_read=sizes.heads * (sizes.queries + 2 * seen) * sizes.vector,
            bytes_written=sizes.heads * sizes.queries * (sizes.vector + FLOAT32),
        )
    ]


def fa2_backward(sizes: Sizes) -> list[KernelTraffic]:
    """delta; then dK and dV, Q and dO streaming past; then dQ, K and V streaming past."""
    rows = sizes.heads * sizes.queries
    walked = sizes.heads * queries_read(sizes, sizes.tiles(fa2_tiles.BACKWARD_KEYS), False)
    seen = sizes.heads * keys_read(sizes, sizes.filled_tiles(fa2_tiles.BACKWARD_QUERIES))
    own_keys = 2 * sizes.kv_heads * sizes.keys * sizes.vector
    query_side = 2 * sizes.vector + 2 * FLOAT32  # q and dO; log-sum-exp and delta
    return [
        KernelTraffic("delta_kernel", 2 * rows * sizes.vector, rows * FLOAT32),
        KernelTraffic("keys_kernel", own_keys + walked * query_side, own_keys),
        KernelTraffic(
            "queries_kernel", rows * query_side + 2 * seen * sizes.vector, rows * sizes.vector
        ),
    ]


# --- FlashAttention-1 -------------------------------------------------------------------------------


def fa1_forward(sizes: Sizes) -> list[KernelTraffic]:
    """K and V once a head; Q at every visit; the unfinished O, m and l fetched and kept between visits.

    O grows in float32, and its last visit writes it rounded, with the log-sum-exp instead of m and l.
    """
    visits = queries_read(sizes, sizes.tiles(fa1_tiles.FORWARD), True)
    state = (visits - sizes.queries) * (sizes.width + 2) * FLOAT32
    read = 2 * sizes.keys * sizes.vector + visits * sizes.vector + state
    written = state + sizes.queries * (sizes.vector + FLOAT32)
    return [KernelTraffic("forward_kernel", sizes.heads * read, sizes.heads * written)]


def fa1_backward(sizes: Sizes) -> list[KernelTraffic]:
    """K, V, dK and dV once a head of keys; Q, O, dO and the log-sum-exp at every visit; dQ grows in float32."""
    visits = queries_read(sizes, sizes.tiles(fa1_tiles.BACKWARD), True)
    state = (visits - sizes.queries) * sizes.width * FLOAT32
    own_keys = 2 * sizes.kv_heads * sizes.keys * sizes.vector
    read = visits * (3 * sizes.vector + FLOAT32) + state
    written = state + sizes.queries * sizes.vector
    return [
        KernelTraffic(
            "backward_kernel",
            bytes_read=own_keys + sizes.heads * read,
            bytes_written=own_keys + sizes.heads * written,
        )
    ]


# --- the textbook's kernels -------------------------------------------------------------------------


def naive_forward(sizes: Sizes) -> list[KernelTraffic]:
    """S = Q K^T; P over S; O = P V."""
    return [
        pairs(sizes),
        softmax(sizes),
        sums(sizes, members=1, turned=False),
    ]


def naive_backward(sizes: Sizes) -> list[KernelTraffic]:
    """dV = P^T dO; dP = dO V^T; dS over dP; dQ = dS K; dK = dS^T Q."""
    group = sizes.heads // sizes.kv_heads
    return [
        sums(sizes, members=group, turned=True),
        pairs(sizes),
        softmax_backward(sizes),
        sums(sizes, members=1, turned=False),
        sums(sizes, members=group, turned=True),
    ]


def pairs(sizes: Sizes) -> KernelTraffic:
    """A tile of the matrix needs the vectors of its queries and of its keys, whatever they may see."""
    tiles = sizes.filled_tiles(naive_tiles.PAIRS)
    left = sizes.queries * tiles_in(sizes.stored_keys, tiles.block_k)
    right = sizes.keys * tiles_in(sizes.queries, tiles.block_q)
    return KernelTraffic(
        "pairs_kernel",
        bytes_read=sizes.heads * (left + right) * sizes.vector,
        bytes_written=sizes.heads * sizes.queries * sizes.stored_keys * sizes.bytes,
    )


def softmax(sizes: Sizes) -> KernelTraffic:
    """S once where a row fits on chip, twice where it does not; P over it."""
    rows = sizes.heads * sizes.queries
    matrix = rows * sizes.stored_keys * sizes.bytes
    fits = sizes.stored_keys <= naive_tiles.softmax_tiles(sizes.stored_keys).block_k
    return KernelTraffic(
        "softmax_kernel",
        bytes_read=matrix if fits else 2 * matrix,
        bytes_written=matrix + rows * FLOAT32,
    )


def softmax_backward(sizes: Sizes) -> KernelTraffic:
    """O and dO for delta, P and dP; dS over dP."""
    rows = sizes.heads * sizes.queries
    matrix = rows * sizes.stored_keys * sizes.bytes
    return KernelTraffic("softmax_backward_kernel", 2 * rows * sizes.vector + 2 * matrix, matrix)


def sums(sizes: Sizes, members: int, turned: bool) -> KernelTraffic:
    """Rows of the matrix, or of its transpose (`turned`), weigh vectors; `members` heads add up to one.

    What is stored behind the last key is read where a tile covers it, and each tile of rows reads all vectors.
    """
    tiles = sizes.filled_tiles(naive_tiles.SUMS)
    stored = (sizes.queries, sizes.stored_keys)
    rows, columns = sizes.queries, sizes.keys
    if turned:
        stored, rows, columns = stored[::-1], columns, rows
    out_heads = sizes.heads // members
    weights = min(stored[0], covered(rows, tiles.block_q)) * min(
        stored[1], covered(columns, tiles.block_k)
    )
    vectors = tiles_in(rows, tiles.block_q) * columns
    return KernelTraffic(
        "sums_kernel",
        bytes_read=sizes.heads * (weights * sizes.bytes + vectors * sizes.vector),
        bytes_written=out_heads * rows * sizes.vector,
    )


LOOPS = {
    ("naive", "forward"): naive_forward,
    ("naive", "backward"): naive_backward,
    ("fa1", "forward"): fa1_forward,
    ("fa1", "backward"): fa1_backward,
    ("fa2", "forward"): fa2_forward,
    ("fa2", "backward"): fa2_backward,
    ("fa3", "forward"): loops_fa3.forward,
    ("fa3", "backward"): lambda sizes: loops_fa3_backward.backward(sizes, fa2_backward),
}
"""(implementation, pass) -> its launches, in their order."""
