"""The words of the tile player, the component of the page Tiles."""

from __future__ import annotations

from app.text.player_formula import FORMULA, FORMULA_BROKEN, FORMULA_LAZY, STATE_ROWS

PLAYER = {
    "player": "Tile player.",
    "patch": "patch ({row}, {column})",
    "token": "the {name} token",
    "padding": "a padded key",
    "unknown": "unknown size",
    "not_a_number": "not a number",
    "right": "right",
    "broken": "broken",
    "value": "value",
    "tags": {
        "formula": "formula",
        "counted": "counted",
        "measured": "measured",
        "recorded": "recorded",
    },
    # the plane
    "plane": {
        "fa2": "The N × N plane, never stored",
        "fa3": "The N × N plane, never stored",
        "fa1": "The N × N plane, never stored",
        "naive": "The N × N plane, stored in HBM",
        "fa2-backward": "The N × N plane, never stored",
    },
    "plane_order": {
        "fa2": "Queries down, keys across; one row of tiles is one program.",
        "fa3": "Queries down, keys across; one row of tiles is walked from its last keys to its first.",
        "fa1": "Queries down, keys across; one program takes the plane column by column.",
        "naive": "Queries down, keys across; three kernels pass over all of it.",
        "fa2-backward": "Queries down, keys across; one row of tiles is one program.",
    },
    "plane_note": {
        "fa2": "All {tokens} × {tokens} scores would take {bytes} (formula). Click a tile of the row.",
        "fa3": "All {tokens} × {tokens} scores would take {bytes} (formula). Click a tile of the row.",
        "fa1": "All {tokens} × {tokens} scores would take {bytes} (formula). Click a column.",
        "naive": "All {tokens} × {tokens} scores take {bytes} in HBM (formula). Click a tile of the row.",
        "fa2-backward": (
            "All {tokens} × {tokens} weights would take {bytes} (formula). Click a tile of the row."
        ),
    },
    "plane_tile": "Queries {first_query}–{last_query} against keys {first_key}–{last_key}.",
    "plane_hidden": (
        "Queries {first_query}–{last_query}, keys {first_key}–{last_key}: hidden by the causal mask, "
        "never read."
    ),
    "plane_label": "Plane of queries and keys; the tile of keys {first} to {last} is lit.",
    # the picture
    "picture": "On the picture",
    "picture_hint": "click a query to follow it",
    "queries_are": "queries {first}–{last}: {from} to {to}",
    "keys_are": "keys {first}–{last}: {from} to {to}",
    "picture_label": "The picture, with {queries} against {keys}.",
    # memory
    "lanes": "What lies where",
    "lanes_hint": "sizes by formula, bytes moved as tagged",
    "hbm": "HBM, the GPU's memory",
    "l2": "L2, shared by all programs",
    "sram": "SRAM, this program's own",
    "hbm_note": {
        "fa2": "Lit: the part that this program uses now.",
        "fa3": "Lit: the part that this program uses now. In fa3 the next one is already on its way.",
        "fa1": "Lit: the part in use now. Unfinished rows of O, m and l wait here between visits.",
        "fa2-backward": "Lit: the part that this program uses now.",
        "pairs": "First kernel: every score is written here.",
        "softmax": "Second kernel: every score is read, every weight is written over it.",
        "sums": "Third kernel: every weight is read again.",
    },
    "l2_note": {
        "flash": (
            "K and V of this head are {bytes}; {gpu} has {size}. Once read, the next program finds them "
            "here, so HBM is asked less often than this program asks."
        ),
        "naive": (
            "The square of this head is {bytes}; {gpu} has {size}. What fits comes back from here; the "
            "squares of all heads together seldom do."
        ),
    },
    "sram_note": "{bytes} of {limit} that one block of {gpu} may have ({tag}).",
    "sram_too_much": "{bytes} is more than the {limit} of one block of {gpu} ({tag}): it does not fit.",
    "chips": {
        "q": "Q",
        "k": "K",
        "v": "V",
        "o": "O",
        "s": "S",
        "p": "P",
        "ml": "m, l",
        "do": "dO",
        "dq": "dQ",
        "lse": "L, δ",
    },
    "tile_chips": {
        "q": "Q tile",
        "k": "K tile",
        "v": "V tile",
        "o": "O",
        "s": "S",
        "p": "P",
        "ml": "m, l",
        "do": "dO tile",
        "dq": "dQ",
        "lse": "L, δ",
        "ds": "dP, dS",
    },
    "kept": {"held": "stays", "new": "just read", "made": "made here, then gone"},
    "deeds": {
        "read": "read now",
        "was": "read once",
        "write": "written now",
        "both": "read and written",
        "later": "written at the end",
    },
    "moved": {"read": "Read so far", "written": "Written so far"},
    "moved_value": "{bytes} ({exact} B, {tag}); {step} at this step",
    # the score tile
    "tile": "Scores of this tile",
    "tile_size": "{rows} × {keys}",
    "tile_hint": "Point at a cell for its score; click, or use the up and down keys, to follow a row.",
    "tile_value": "Row {row}, column {column}: {value}. {query} against {key}.",
    "tile_label": "Scores of {rows} queries and {keys} keys. Up and down keys choose the followed row.",
    # the followed row
    "state": "The followed row",
    "follow": "Follow",
    "row_option": "{token} · {place}",
    "state_rows": STATE_ROWS,
    # its map
    "maps": "The followed row as a map",
    "map_far": "so far",
    "map_wrong": "broken",
    "map_end": "at the end",
    "map_sum": "{seen} keys, sum {sum}.",
    "map_empty": "No weights yet.",
    "outside": "The {name} token: {value}.",
    "outputs": "The row's output, one cell a number: so far, then (if broken) the broken one, then the end.",
    "outputs_none": "The row's output at the end; this kernel does not touch it.",
    "outputs_label": "The numbers of the row's output so far and at the end, as colours.",
    "error_right": "Largest error of this tile's output against float64: {error} ({tag}).",
    "error_now": "Broken output of this row, off by {error} of its largest number.",
    "error_end": "All rows at the end, against float64: broken {broken}, right {right} ({tag}).",
    # formulas
    "formula_title": "The formula, filled in",
    "formula_hint": "row of {row}; click a line for its code",
    "numbers_of": "Numbers of",
    "formula": FORMULA,
    "formula_broken": FORMULA_BROKEN,
    "formula_lazy": FORMULA_LAZY,
    # code
    "code": "The kernel's own lines",
    "code_of": {"fa3": "The lines of fa3's twin"},
    "code_label": "Source code of this step",
    # one sentence
    "keys": "Keys {first} to {last}",
    "one_key": "Key {first}",
    "say": {
        "first": (
            "{keys}, the first tile: the largest score, {maximum}, is the maximum so far, and there is nothing "
            "to rescale."
        ),
        "first_seen": (
            "{keys}, the first that this row may see: the largest score, {maximum}, is the maximum so far, and "
            "there is nothing to rescale."
        ),
        "rose": (
            "{keys}: a larger score is found, the maximum rises from {oldMax} to {maximum}, and what was "
            "summed before counts {alpha} times as much."
        ),
        "lags": (
            "{keys}: the largest score, {tileMax}, is above {oldMax}, but weights against that stay small, so the "
            "maximum stays for now, nothing old is rescaled, and the sum grows by {added}."
        ),
        "stays": (
            "{keys}: no score is above {oldMax}, so the maximum stays, nothing old is rescaled, and the sum "
            "grows by {added}."
        ),
        "hidden": "{keys}: hidden from this row by the causal mask, so nothing changes.",
        "pairs": (
            "{keys}, first kernel: the scores are computed and written to HBM, the largest being {tileMax}."
        ),
        "softmax": (
            "{keys}, second kernel: the scores come back from HBM and leave the chip as weights, "
            "e^(S − {maximum}) / {sum}."
        ),
        "sums": (
            "{keys}, third kernel: the weights come back from HBM, and weigh their values into the output."
        ),
        "backward": (
            "{keys}: the weights are built again as e^(S − {log_sum_exp}), with no maximum and no sum to look "
            "for, and dS·K is added to the gradient of Q."
        ),
    },
    "say_right": "With nothing broken:",
    "say_last": {
        "fa2": "That was the last tile: O is divided by {sum} once and written to HBM.",
        "fa3": "That was the last tile, the first keys: O is divided by {sum} once and written to HBM.",
        "fa1": "That was the last tile: O is finished and goes to HBM in its own precision.",
        "naive": "That was the last tile: O is written to HBM.",
        "fa2-backward": "That was the last tile: dQ gets its factor, the scale, and is written to HBM.",
    },
    # controls
    "step": "step {step} of {steps}",
    "scrub": "Step",
    "speed": "Speed",
    "acts": {
        "first": "First step (Home)",
        "back": "Step back (left arrow)",
        "play": "Play (space)",
        "pause": "Pause (space)",
        "forward": "Step forward (right arrow)",
        "last": "Last step (End)",
    },
}
