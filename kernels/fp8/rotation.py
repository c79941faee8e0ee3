"""Incoherent processing: a random rotation that spreads outliers over head_dim. Shah et al. 2024, section 3.3."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

SEED = 0x5EED
"""Which random signs; q and k must use the same, and so must everyone who reads what was quantised."""


def hadamard(size: int) -> Tensor:
    """Sylvester's matrix of +1 and -1, float32 [size, size]; its rows are orthogonal, each of length sqrt(size).

    Raises:
        ValueError: the size is not a power of two.
    """
    if size < 1 or size & (size - 1):
        raise ValueError(f"a Hadamard matrix of size {size} is not made here: use a power of two")
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def signed_hadamard(size: int) -> Tensor:
    """R = D H with random signs D, all +1 and -1, float32 [size, size]; x R / sqrt(size) is a rotation of rows x.

    (q R)(k R)^T = size * q k^T: the scores stay, and an outlier in one channel becomes +-1 / sqrt(size) of
    itself in every channel.
    """
    generator = torch.Generator().manual_seed(SEED)
    signs = torch.randint(0, 2, (size, 1), generator=generator) * 2 - 1
    return signs * hadamard(size)


@cache
def rotation_on(device: torch.device, dtype: torch.dtype, size: int) -> Tensor:
    """`signed_hadamard` on a device: its ones are exact in every dtype."""
    return signed_hadamard(size).to(device, dtype)
