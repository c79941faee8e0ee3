"""What a walk hands back: one step a tile, with the numbers that the kernel itself wrote out."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


class TraceError(RuntimeError):
    """Why there is no walk, in one sentence that says what to do."""


@dataclass(frozen=True)
class Step:
    """The state of one query tile after one tile of keys; tensors are float32, on the CPU.

    In natural units: maxima are scaled scores, and rescale factors are powers of e, whatever base the kernel
    works in. What a kernel does not hold is neutral: before naive's softmax the maximum is -inf and the sum 0;
    in the backward pass the maximum is the log-sum-exp and the sum 1, so that a weight is always
    exp(score - running_max) / running_sum in the end.
    """

    name: str  # the heading of story.md that this step shows; `TITLES` names all that it passes
    phase: str  # naive: "pairs", "softmax" or "sums"; else ""
    key_start: int
    keys: int  # key_start .. key_start + keys are covered
    scores: Tensor  # [rows, keys], scale applied, -inf where hidden; naive: before they are rounded for HBM
    running_max: Tensor  # [rows], after this tile, as are all that follow
    running_sum: Tensor  # [rows]
    rescale: (
        Tensor  # [rows]: exp(old maximum - new maximum); fa1: what the old output is multiplied by
    )
    output: Tensor  # [rows, dim] as the kernel holds it: fa2 not divided; fa1 divided; backward: dQ / scale
    bytes_read: int  # so far; what the walk writes out for itself is not counted
    bytes_written: int
    extra: dict[str, Tensor] = field(default_factory=dict)
    # backward: weights and grad_weights [rows, keys], delta [rows]; naive: weights, once they are there;
    # "tail-not-masked": padding [rows, padded keys], the scores of keys that do not exist


@dataclass(frozen=True)
class Walk:
    """One query tile of one head on its way through all keys that it sees."""

    implementation: str  # "naive", "fa1", "fa2", "fa3" or "fa2-backward"
    broken: str | None  # a name of BROKEN, or None for the real kernel
    causal: bool
    scale: float
    block_q: int
    block_k: int
    query_start: int
    rows: int  # queries of this tile: block_q, or what is left of the last one
    tokens: int
    head_dim: int
    dtype: str
    steps: tuple[Step, ...]
    output: Tensor  # [rows, dim] as the kernel stored it, its own dtype; backward: dQ
    log_sum_exp: Tensor  # float32 [rows] as the kernel stored it; backward: as it was given
    largest_error: float  # of output against float64 on these rows; inf where a number is none
    formula_read: int  # by formula for exactly this walk; the last step's counters are equal to it
    formula_written: int
    head_read: int  # by formula for the whole head with these tiles
    head_written: int
    bytes_source: str  # "counted" at the loads and stores of this run, or "formula" where the kernel is compiled
    most_rise: float = (
        0.0  # fa3 at some widths: a row's maximum stays while it would rise by this or less
    )
    note: str = ""  # sentences where another kernel walked in this one's place; see `NOTES`


TITLES: dict[str, tuple[str, ...]] = {
    "pairs": ("Compare every query with every key",),
    "softmax": ("Turn each row into probabilities",),
    "sums": ("Mix the values",),
    "fa1": (
        "Hold one tile of keys and values",
        "Fetch what the last pass left",
        "Take the softmax of this tile alone",
        "Merge it with the softmax so far",
        "Put it back into HBM",
    ),
    "fa2": ("Score the tile", "Update the running maximum and sum", "Rescale, then add"),
    "fa3": ("Weigh this tile against the maximum so far", "Rescale, then add"),
    "fa2-backward": ("Walk the keys for one query tile", "Gradient of Q"),
}
"""Implementation, or phase of naive -> the headings of story.md that one step passes, in their order."""

NAMES: dict[str, str] = {
    "pairs": "Compare every query with every key",
    "softmax": "Turn each row into probabilities",
    "sums": "Mix the values",
    "fa1": "Merge it with the softmax so far",
    "fa2": "Update the running maximum and sum",
    "fa3": "Weigh this tile against the maximum so far",
    "fa2-backward": "Gradient of Q",
}
"""The same -> the one heading that names the step."""

NOTES: dict[str, str] = {
    "fa3": (
        "These are the numbers of fa3's twin, a plain Triton kernel with the same arithmetic in the same order of "
        "tiles; fa3 itself runs on a Hopper GPU only, and cannot be stopped half way."
    ),
}
"""Implementation -> the sentence that says whose numbers a walk of it shows."""

IN_ONE_PIECE = "With so few keys fa3 needs no walk: it takes them all in one piece, with one maximum and one sum."
"""Said besides where fa3 would not go tile by tile."""
