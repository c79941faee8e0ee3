"""The words of what is exported from the page Tiles: film, step as a picture, page that plays offline.

In pictures only signs that their font has: no minus sign, no multiplication sign, no Greek.
"""

from __future__ import annotations

ORIGIN = {
    "line": (
        "Picture {picture} · {model} · layer {layer}, head {head} · {implementation} · tiles of {block_q} by {block_k}, "
        "{mask}{broken} · {dtype}"
    ),
    "masked": "causal",
    "unmasked": "not causal",
    "broken": " · broken: {name}",
    "made": "Made with Flashlens on {when} · {versions}",
}

IMPLEMENTATION = {
    "naive": "Naive",
    "fa1": "FlashAttention-1",
    "fa2": "FlashAttention-2",
    "fa3": "FlashAttention-3 (its plain twin)",
    "fa2-backward": "FlashAttention-2, backward",
}

STILL = {
    "title": "{implementation}: queries {first} to {last} of {tokens}",
    "step": "Step {step} of {count}: keys {first} to {last}",
    "plane": "The N by N plane",
    "stored": "stored in HBM",
    "unstored": "never stored",
    "picture": "On the picture",
    "queries": "queries",
    "keys": "keys",
    "followed": "followed row",
    "map": "The row's weights so far",
    "map_broken": "Broken, so far",
    "token": "the {name} token",
    "patch": "patch ({row}, {column})",
    "sum": "{seen} keys, sum {sum:#.4g}",
    "no_weights": "no weights yet",
    "max": "maximum m",
    "factor": "rescale factor",
    "normaliser": "sum l",
    "change": "{old} to {new}",
    "none": "none yet",
    "not_needed": "not needed",
    "read": "read so far",
    "written": "written so far",
    "tagged": "{value} ({tag})",
    "error": "largest error",
    "error_at_end": "known at the last step",
    "error_value": "{error} ({tag})",
    "error_broken": "{error}, right {right} ({tag})",
    "what": "step of the kernel",
}

PAGE = {
    "title": "Flashlens: {implementation}, tile by tile",
    "lead": (
        "One tile of queries walks through one attention head. This page holds the whole walk; it needs no server "
        "and no network. Space plays, the arrow keys step."
    ),
    "no_script": "The player needs JavaScript.",
}

SAVE = {
    "html": "Player (HTML)",
    "html_help": "One file that plays this walk in any browser, without a server or a network.",
    "gif": "Film (GIF)",
    "gif_help": "Every step as a frame, in 256 colours.",
    "webp": "Film (WebP)",
    "webp_help": "Every step as a frame, in all colours; a smaller file.",
    "png": "This step (PNG)",
    "png_help": "The step at which the player stands.",
    "versions": "torch {torch}, Triton {triton}",
    "no_triton": "torch {torch}, no Triton",
}
