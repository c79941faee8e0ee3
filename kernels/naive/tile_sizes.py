"""Tile sizes of the naive kernels, and how they lay an N x N matrix out in memory."""

from __future__ import annotations

from kernels.tile_sizes import Table, Tiles

PAIRS: Table = {
    ("any", 2, 16): Tiles(128, 128, 8, 2),
    ("any", 2, 32): Tiles(128, 128, 8, 2),
    ("any", 2, 64): Tiles(128, 128, 8, 2),
    ("any", 2, 128): Tiles(128, 64, 8, 2),
    ("any", 2, 256): Tiles(128, 64, 8, 2),
    ("any", 4, 16): Tiles(64, 64, 8, 2),
    ("any", 4, 32): Tiles(64, 64, 8, 2),
    ("any", 4, 64): Tiles(64, 64, 8, 2),
    ("any", 4, 128): Tiles(64, 64, 8, 2),
    ("any", 4, 256): Tiles(64, 64, 8, 2),
}
"""Products that give an N x N matrix: S = Q K^T, dP = dO V^T."""

SUMS: Table = {
    ("any", 2, 16): Tiles(128, 64, 4, 3),
    ("any", 2, 32): Tiles(128, 32, 4, 4),
    ("any", 2, 64): Tiles(128, 32, 4, 4),
    ("any", 2, 128): Tiles(128, 32, 8, 4),
    ("any", 2, 256): Tiles(64, 16, 8, 4),
    ("any", 4, 16): Tiles(64, 32, 4, 2),
    ("any", 4, 32): Tiles(64, 32, 4, 2),
    ("any", 4, 64): Tiles(64, 16, 8, 2),
    ("any", 4, 128): Tiles(32, 16, 8, 2),
    ("any", 4, 256): Tiles(32, 16, 8, 2),
}
"""Products with an N x N matrix: P V, P^T dO, dS K, dS^T Q. `block_k` is how much of the sum goes at once."""

WIDTH_AT_ONCE = {2: 64, 4: 16}
"""Bytes of an element -> how much of head_dim PAIRS takes at once."""

SOFTMAX_BACKWARD = Tiles(8, 512, 4, 1)

LONGEST_BLOCK = 16384
"""Scores that one program of the softmax holds at once: 32 for each thread of 16 warps."""


def softmax_tiles(columns: int) -> Tiles:
    """Whole rows where they fit, several of them where they are short; 32 scores for each thread."""
    block_k = min(max(16, 1 << (columns - 1).bit_length()), LONGEST_BLOCK)
    scores = max(block_k, 4096)
    return Tiles(scores // block_k, block_k, warps=scores // 1024, stages=1)


def stored_columns(keys: int) -> int:
    """The length of a stored row: a multiple of 16, so that rows move in words of 16 bytes.

    The columns behind the last key hold -inf in S and 0 in P, dP and dS.
    """
    return (keys + 15) // 16 * 16
