"""A tiny preset, ways to damage a file, what a refusal looks like, and a fresh process."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from vit import load_model
from vit.weights import WeightsError

ROOT = Path(__file__).parents[2]


@dataclass
class TinyPreset:
    """Tensors that stand for packaged weights, and a count of how often they were converted."""

    tensors: dict[str, torch.Tensor]
    conversions: list[str] = field(default_factory=list)

    def is_loaded(self) -> bool:
        """Whether loading it gives exactly its tensors."""
        loaded = load_model("tiny", device="cpu").state_dict()
        return all(torch.equal(loaded[name], self.tensors[name]) for name in self.tensors)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(call: Callable[[], object]) -> str:
    """What the call refuses with: one line, one sentence."""
    with pytest.raises(WeightsError) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 500
    return sentence


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff" * 4096)


def boastful(path: Path) -> None:
    """A header that promises a header of 2**60 bytes."""
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")


def one_bit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-50, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-50, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def in_a_process(code: str, **variables: str) -> list[str]:
    """What the code prints, run by a fresh Python in the project's folder."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
