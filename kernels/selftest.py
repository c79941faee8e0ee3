"""Does the log-sum-exp on this machine give the truth back? Asked once, before any map is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels import reference
from kernels.door import attention
from kernels.problem import Problem
from kernels.rebuild import attention_rows
from kernels.registry import choose

TOKENS = (1, 63, 65, 257)
HEADS, HEAD_DIM = 2, 64
ROUNDING = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest error allowed for unit-normal q, k, v: about eight units in the last place of the output."""


@dataclass(frozen=True)
class SelfTest:
    """What was found, and the sentence for the screen."""

    passed: bool
    sentence: str
    implementation: str
    largest_error: float


def self_test(
    implementation: str = "auto", device: str | None = None, dtype: torch.dtype | None = None
) -> SelfTest:
    """Compare log-sum-exp, row sums and P @ V with float64 at 1, 63, 65 and 257 tokens."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or (torch.float16 if device == "cuda" else torch.float32)
    name, largest = implementation, 0.0
    try:
        for tokens in TOKENS:
            if implementation == "auto":
                kind = str(dtype).removeprefix("torch.")
                name = choose(Problem(1, HEADS, tokens, tokens, HEAD_DIM, kind), device)
            for what, error in errors(name, tokens, device, dtype).items():
                # Not "error > bound": a NaN must fail.
                if not error <= ROUNDING[dtype]:
                    sentence = f"{what} of {name} is off by {error:.2g} at {tokens} tokens"
                    return SelfTest(False, f"{sentence}; no map is drawn.", name, error)
                largest = max(largest, error)
    except (RuntimeError, ValueError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        return SelfTest(
            False, f"{name} does not run here ({reason}); no map is drawn.", name, torch.inf
        )
    sentence = (
        f"{name} agrees with float64 to {largest:.1g} at {', '.join(map(str, TOKENS))} tokens."
    )
    return SelfTest(True, sentence, name, largest)


def errors(name: str, tokens: int, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Largest absolute error of each thing that the maps rest on."""
    generator = torch.Generator().manual_seed(tokens)
    shape = (3, 1, HEADS, tokens, HEAD_DIM)
    q, k, v = torch.randn(shape, generator=generator).to(device, dtype)
    output, lse = attention(q, k, v, implementation=name)
    rows = attention_rows(q, k, lse, range(tokens))
    true_output, true_lse = reference.attention(q, k, v, HEAD_DIM**-0.5)
    return {
        "The log-sum-exp": (lse - true_lse).abs().max().item(),
        "The row sum": (rows.double().sum(-1) - 1).abs().max().item(),
        "P @ V": (rows.double() @ v.double() - output.double()).abs().max().item(),
        "The output": (output.double() - true_output).abs().max().item(),
    }
