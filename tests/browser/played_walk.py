"""A played walk: FlashAttention-2's numbers from random q, k and v, by float64 numpy; no kernel runs.

It is made from the textbook's softmax over the keys seen so far, so it also checks what the player shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kernels.trace import Step, Walk


@dataclass(frozen=True)
class Head:
    """q, k, v float64 [tokens, dim] of one played head."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray

    @property
    def scale(self) -> float:
        return self.q.shape[1] ** -0.5


def head(tokens: int, dim: int = 64, seed: int = 5) -> Head:
    """Scores with a standard deviation near 3, so that maxima rise over several tiles."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, tokens, dim))
    return Head(3.0 * q, k, v)


def played_walk(
    head: Head,
    query_tile: int = 0,
    block: int = 64,
    causal: bool = False,
    broken: str | None = None,
    implementation: str = "fa2",
) -> Walk:
    """One query tile against every tile of keys. `broken`: None or "output-not-rescaled"."""
    tokens, dim = head.q.shape
    start = query_tile * block
    rows = min(block, tokens - start)
    scores = head.scale * head.q[start : start + rows] @ head.k.T
    if causal:
        places = np.arange(start, start + rows)
        scores = np.where(np.arange(tokens)[None] > places[:, None], -np.inf, scores)
    steps, seen, read = [], min(tokens, start + rows) if causal else tokens, 4 * rows * dim
    raw = np.zeros((rows, dim))
    old_max, old_sum = np.full(rows, -np.inf), np.zeros(rows)
    for key in range(0, seen, block):
        part = scores[:, key : key + block]
        so_far = scores[:, : key + block]
        largest = so_far.max(axis=1)
        weights = np.exp(so_far - largest[:, None])
        rescale = np.exp(old_max - largest)
        true = weights @ head.v[: key + block]
        added = np.exp(part - largest[:, None]) @ head.v[key : key + block]
        raw = raw + added if broken else true
        total = weights.sum(axis=1)
        divided = raw / total[:, None]
        if implementation == "fa1":
            rescale = rescale * old_sum / total
        read += 2 * 4 * part.shape[1] * dim
        steps.append(
            Step(
                name="Update the running maximum and sum"
                if implementation == "fa2"
                else "Merge it with the softmax so far",
                phase="",
                key_start=key,
                keys=part.shape[1],
                scores=torch.tensor(part, dtype=torch.float32),
                running_max=torch.tensor(largest, dtype=torch.float32),
                running_sum=torch.tensor(weights.sum(axis=1), dtype=torch.float32),
                rescale=torch.tensor(rescale, dtype=torch.float32),
                output=torch.tensor(raw if implementation == "fa2" else divided).float(),
                bytes_read=read,
                bytes_written=0,
            )
        )
        old_max, old_sum = largest, total
    exact = np.exp(scores - scores.max(axis=1)[:, None])
    total = exact.sum(axis=1)
    output = raw / total[:, None]
    truth = exact @ head.v / total[:, None]
    return Walk(
        implementation=implementation,
        broken=broken,
        causal=causal,
        scale=head.scale,
        block_q=block,
        block_k=block,
        query_start=start,
        rows=rows,
        tokens=tokens,
        head_dim=dim,
        dtype="float32",
        steps=tuple(steps),
        output=torch.tensor(output, dtype=torch.float32),
        log_sum_exp=torch.tensor(scores.max(axis=1) + np.log(total), dtype=torch.float32),
        largest_error=float(np.abs(output - truth).max()),
        formula_read=read,
        formula_written=0,
        head_read=read,
        head_written=0,
        bytes_source="counted",
    )
