"""Maps as files: numbers for NumPy, and writing that leaves no half file behind."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def npz(maps: np.ndarray, log_sum_exp: np.ndarray, settings: Mapping[str, object]) -> bytes:
    """An .npz with `map` [heads, rows, columns], `log_sum_exp` [heads, tokens] and `settings`.

    The settings are a JSON text, so that the file loads with `allow_pickle=False`.
    """
    file = io.BytesIO()
    np.savez_compressed(
        file, map=maps, log_sum_exp=log_sum_exp, settings=np.array(json.dumps(dict(settings)))
    )
    return file.getvalue()


def write(path: Path, content: bytes) -> None:
    """Write the file whole or not at all.

    Raises:
        OSError: the folder or the disk does not take it.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
