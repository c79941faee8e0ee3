"""The view as numbers to keep, one NPZ file for NumPy."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import numpy as np


def npz(maps: np.ndarray, log_sum_exp: np.ndarray, settings: Mapping[str, object]) -> bytes:
    """An NPZ file that `numpy.load(file, allow_pickle=False)` reads.

    Args:
        maps: [heads, rows, columns], stored as "map".
        log_sum_exp: [heads, tokens] of the same layer.
        settings: what made them, stored as a JSON text in "settings".
    """
    file = io.BytesIO()
    np.savez_compressed(
        file,
        map=maps.astype(np.float32),
        log_sum_exp=log_sum_exp.astype(np.float32),
        settings=np.array(json.dumps(dict(settings))),
    )
    return file.getvalue()
