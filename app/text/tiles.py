"""The words of the page Tiles; those of its player stand in `player`."""

from __future__ import annotations

PAGE = {
    "title": "Tiles",
    "picture": "{title} · {side} px",
    "lead": (
        "One tile of queries walks through one head of your picture, as the kernel does it. "
        "Press play, or step."
    ),
    "subject": (
        "Layer {layer}, head {head}: queries {first} to {last} of {tokens} tokens, in float32."
    ),
    "walking": "Running the kernel on queries {first} to {last}, one tile of keys after another.",
    "caption": "layer {layer}, head {head}",
    "bad_link": "The link's {name} makes no sense here, so its default is taken.",
    "not_here": "This picture has no such place as the link's {name}, so its own default is taken.",
    "too_large": (
        "Tiles of {tile} need {need} on the chip and one block has {limit}, so {instead} are taken."
    ),
}

LINK = {
    "label": "Walk this head, tile by tile",
}

CHOICE = {
    "algorithm": "Algorithm",
    "naive": "Naive",
    "fa1": "FlashAttention-1",
    "fa2": "FlashAttention-2",
    "fa3": "FlashAttention-3",
    "fa2-backward": "Backward (FA-2)",
    "tile": "Tile {queries} × {keys}",
    "tile_help": "Queries × keys of a tile, and what lies on the chip with it.",
    "tile_title": (
        "Queries × keys of a tile, and the bytes that one program then holds on the chip (formula). "
        "One block of {gpu} has {limit}."
    ),
    "size": "{queries} × {keys}",
    "tile_one": "{queries}×{keys}  \n{need}",
    "this_gpu": "this GPU",
    "recorded_gpu": "an NVIDIA H200 (recorded; there is no GPU here)",
    "query_tile": "Tile of queries",
    "query_tile_one": "{number} of {count}: {first}–{last}",
    "query_tile_own": "{number} of {count}: {first}–{last} (query)",
    "query_tile_help": "The tile of queries that is walked. It follows the query of the page Heads.",
    "layer": "Layer",
    "head": "Head",
    "causal": "Causal",
    "causal_help": "Each query sees the keys up to its own place only; later tiles are never read.",
    "broken": "Break it",
    "broken_help": "The same kernel with one step left out, beside the right one.",
    "whole": "nothing",
    "sum-not-rescaled": "sum not rescaled",
    "output-not-rescaled": "output not rescaled",
    "divided-every-step": "divided at every step",
    "no-maximum": "no maximum",
    "log-base": "wrong base of the power",
    "tail-not-masked": "padding not masked",
    "alpha-upside-down": "factor upside down",
}

BEYOND = {
    "title": "What this walk cannot show",
    "text": (
        "FlashAttention-3 computes what you have just seen, and no more. It is faster because of what happens at the same time: one "
        "warp fetches the next tiles while others compute, a product runs while the exponentials of the next tile are taken, and two "
        "groups of warps take turns, so that one multiplies while the other is in its softmax."
    ),
    "backward_title": "FlashAttention-3's backward pass",
    "backward": (
        "It is not walked here: a program owns 128 keys and goes along the queries once, where FlashAttention-2 goes along the keys too, "
        "for dQ, and rebuilds every weight a second time. Each tile of keys has a share of dQ, and the shares are added up in "
        "memory, in float32. For this head in half precision it asks for {ours}, {shares} of that for the shares of dQ; the passes of "
        "FlashAttention-2 ask for {theirs} (formula, tiles of an H200)."
    ),
    "backward_fa2": (
        "With so few keys, or so narrow or wide a head, fa3 has none of its own and takes FlashAttention-2's."
    ),
    "steps": "The kernel itself, step by step",
    "place": "`{file}`, line {line}",
}

PROOF = {
    "real": (
        "Last step against {name} ({dtype}), the kernel that this machine takes for its maps: "
        "largest difference **{difference}** on {rows} rows (measured)."
    ),
    "error": "Largest error against float64: **{error}** (measured).",
    "broken": (
        "Broken, its largest error is **{broken}**; the right kernel's is {error} (both measured)."
    ),
    "bytes": (
        "This walk asked for {read} bytes to read and {written} to write (counted at {whose} own loads "
        "and stores); its loops say {formula_read} and {formula_written} (formula): **{verdict}**."
    ),
    "bytes_formula": (
        "This walk asked for {read} bytes to read and {written} to write (formula; the kernel is compiled "
        "here, and a compiled kernel has no counter)."
    ),
    "kernels": "the kernel's",
    "twins": "the twin's",
    "same": "the same to the byte",
    "differs": "they differ by {bytes}, which is a fault of ours",
    "head": (
        "All {count} query tiles of this head: {read} read, {written} written (formula). One of its "
        "N × N matrices would be {stored} in float32 (formula)."
    ),
}
