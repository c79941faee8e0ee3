"""The formulas of the tile player, and the names of a row's numbers.

The names in braces are those that `stepValues` in formula.js gives.
"""

from __future__ import annotations

FLASH, LAST_DIVIDED = ("fa1", "fa2", "fa3"), ("fa2", "fa3")


def divided_last(score: str, update: str) -> dict[str, tuple[str, str, str]]:
    """The formulas of a kernel that divides at the end; its story's titles for the scores, and for m and l."""
    return {
        "score": (score, "S = scale · q·kᵀ", "largest {tileMax}, at {best}"),
        "max": (update, "m = max(m_old, largest S)", "max({oldMax}, {tileMax}) = {maximum}"),
        "alpha": (update, "α = e^(m_old − m)", "e^({oldMax} − {maximum}) = {alpha}"),
        "sum": (
            update,
            "l = α · l_old + Σ e^(S − m)",
            "{alpha} · {oldSum} + {added} = {sum}",
        ),
        "output": (
            "Rescale, then add",
            "O = α · O_old + P·V, first number",
            "{rescale} · {old_out} + {new_out} = {out}",
        ),
        "divided": ("Divide once", "O / l, if it ended here", "{out} / {sum} = {divided}"),
    }


FORMULA = {
    "fa2": divided_last("Score the tile", "Update the running maximum and sum"),
    "fa3": divided_last(*2 * ("Weigh this tile against the maximum so far",)),
    "fa1": {
        "score": (
            "Take the softmax of this tile alone",
            "S = scale · q·kᵀ",
            "largest {tileMax}, at {best}",
        ),
        "fetch": (
            "Fetch what the last pass left",
            "m_old, l_old from HBM",
            "{oldMax}, {oldSum}",
        ),
        "max": (
            "Merge it with the softmax so far",
            "m = max(m_old, largest S)",
            "max({oldMax}, {tileMax}) = {maximum}",
        ),
        "alpha": (
            "Merge it with the softmax so far",
            "α = e^(m_old − m)",
            "e^({oldMax} − {maximum}) = {alpha}",
        ),
        "sum": (
            "Merge it with the softmax so far",
            "l = α · l_old + Σ e^(S − m)",
            "{alpha} · {oldSum} + {added} = {sum}",
        ),
        "factor": (
            "Merge it with the softmax so far",
            "factor on O_old = α · l_old / l",
            "{alpha} · {oldSum} / {sum} = {rescale}",
        ),
        "output": (
            "Merge it with the softmax so far",
            "O = factor · O_old + P·V / l, first number",
            "{rescale} · {old_out} + {new_out} = {out}",
        ),
    },
    "pairs": {
        "score": (
            "Compare every query with every key",
            "S = scale · q·kᵀ",
            "largest {tileMax}, at {best}",
        )
    },
    "softmax": {
        "max": ("Turn each row into probabilities", "m = largest S of the row", "{maximum}"),
        "sum": ("Turn each row into probabilities", "l = Σ e^(S − m) of the row", "{sum}"),
        "weight": (
            "Turn each row into probabilities",
            "P = e^(S − m) / l",
            "e^({tileMax} − {maximum}) / {sum} = {weights}",
        ),
    },
    "sums": {
        "output": (
            "Mix the values",
            "O = O_old + P·V, first number",
            "{old_out} + {new_out} = {out}",
        )
    },
    "fa2-backward": {
        "weight": (
            "Gradient of Q",
            "P = e^(S − L)",
            "e^({tileMax} − {log_sum_exp}) = {weights}",
        ),
        "grad_weight": ("Gradient of Q", "dP = dO·vᵀ", "{grad_weights}"),
        "grad_score": (
            "Gradient of Q",
            "dS = P · (dP − δ)",
            "{weights} · ({grad_weights} − {delta}) = {grad_score}",
        ),
        "output": (
            "Gradient of Q",
            "dQ / scale = old + dS·K, first number",
            "{old_out} + {new_out} = {out}",
        ),
    },
}
"""Implementation, or phase of naive -> id -> (step of the story, symbols, the same with numbers)."""

FORMULA_LAZY = (
    "m = largest S if a thread's Σ e^(S − m_old) reaches 2¹³, else m_old",
    "Σ {share} against {limit}: m = {maximum}",
)
"""The maximum of a kernel that rescales seldom: symbols, the same with numbers."""

FORMULA_BROKEN = {
    "sum-not-rescaled": {
        name: {"sum": ("l = l_old + Σ e^(S − m)", "{oldSum} + {added} = {sum}")} for name in FLASH
    },
    "output-not-rescaled": {
        name: {"output": ("O = O_old + P·V, first number", "{old_out} + {new_out} = {out}")}
        for name in LAST_DIVIDED
    }
    | {
        "fa1": {"factor": ("factor on O_old = l_old / l", "{oldSum} / {sum} = {rescale}")},
    },
    "divided-every-step": {
        name: {
            "output": (
                "O = (α · O_old + P·V) / l, first number",
                "({rescale} · {old_out} + {new_out}) / {sum} = {out}",
            ),
            "divided": ("O is divided already", "{divided}"),
        }
        for name in LAST_DIVIDED
    }
    | {
        "fa1": {"factor": ("factor on O_old = α / l", "{alpha} / {sum} = {rescale}")},
    },
    "no-maximum": {
        name: {
            "max": ("m = 0: no maximum is taken", "m = {maximum}"),
            "sum": ("l = l_old + Σ e^S", "{oldSum} + {added} = {sum}"),
        }
        for name in FLASH
    }
    | {
        "naive": {
            "max": ("m = 0: no maximum is taken", "m = {maximum}"),
            "weight": ("P = e^S / l", "e^{tileMax} / {sum} = {weights}"),
        }
    },
    "log-base": {
        name: {
            "max": (
                "m = max(m_old, 0.693 · largest S)",
                "max({oldMax}, 0.693 · {tileMax}) = {maximum}",
            ),
            "sum": (
                "l = α · l_old + Σ 2^S / e^m",
                "{alpha} · {oldSum} + {added} = {sum}",
            ),
        }
        for name in FLASH
    }
    | {
        "naive": {
            "max": ("m = 0.693 · largest S of the row", "{maximum}"),
            "weight": ("P = 2^S / e^m / l", "2^{tileMax} / e^{maximum} / {sum} = {weights}"),
        }
    },
    "tail-not-masked": {
        name: {
            "sum": (
                "l = α · l_old + Σ e^(S − m), padding too",
                "{alpha} · {oldSum} + {added} = {sum}",
            )
        }
        for name in FLASH
    }
    | {"naive": {"sum": ("l = Σ e^(S − m) of the row, padding too", "{sum}")}},
    "alpha-upside-down": {
        name: {"alpha": ("α = e^(m − m_old)", "e^({maximum} − {oldMax}) = {alpha}")}
        for name in FLASH
    },
}
"""Name of the mistake -> implementation -> id -> (symbols, the same with numbers) in its place."""

STATE_ROWS = {
    name: {
        "tileMax": "largest score of the tile",
        "oldMax": "maximum before (m)",
        "maximum": "maximum now (m)",
        "alpha": "rescale factor (α)",
        "oldSum": "sum before (l)",
        "added": "this tile adds",
        "sum": "sum now (l)",
    }
    for name in FLASH
} | {
    "pairs": {"tileMax": "largest score of the tile"},
    "softmax": {
        "maximum": "maximum of the row",
        "sum": "sum of the row",
        "tileMax": "largest score of the tile",
        "weights": "its weight",
    },
    "sums": {
        "weights": "largest weight of the tile",
        "old_out": "first output number before",
        "out": "first output number now",
    },
    "fa2-backward": {
        "log_sum_exp": "log-sum-exp (L)",
        "delta": "sum of dO × O (δ)",
        "tileMax": "largest score of the tile",
        "weights": "its weight (P)",
        "grad_weights": "gradient of that weight (dP)",
        "grad_score": "gradient of that score (dS)",
    },
}
"""Implementation, or phase of naive -> which numbers of the row are listed, and their names."""
