"""The formulas of the tile player, and the names of a row's numbers.

The names in braces are those that `stepValues` in formula.js gives.
"""

from __future__ import annotations

FORMULA = {
    "fa2": {
        "score": ("Score the tile", "S = scale · q·kᵀ", "largest {tileMax}, at {best}"),
        "max": (
            "Update the running maximum and sum",
            "m = max(m_old, largest S)",
            "max({oldMax}, {tileMax}) = {maximum}",
        ),
        "alpha": (
            "Update the running maximum and sum",
            "α = e^(m_old − m)",
            "e^({oldMax} − {maximum}) = {rescale}",
        ),
        "sum": (
            "Update the running maximum and sum",
            "l = α · l_old + Σ e^(S − m)",
            "{rescale} · {oldSum} + {added} = {sum}",
        ),
        "output": (
            "Rescale, then add",
            "O = α · O_old + P·V, first number",
            "{rescale} · {old_out} + {new_out} = {out}",
        ),
        "divided": ("Divide once", "O / l, if it ended here", "{out} / {sum} = {divided}"),
    },
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
            "e^({oldMax} − {maximum}) = {rescale}",
        ),
        "sum": (
            "Merge it with the softmax so far",
            "l = α · l_old + Σ e^(S − m)",
            "{rescale} · {oldSum} + {added} = {sum}",
        ),
        "output": (
            "Merge it with the softmax so far",
            "O = (α · l_old · O_old + P·V) / l, first number",
            "({rescale} · {oldSum} · {old_out} + {new_out}) / {sum} = {out}",
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

FORMULA_BROKEN = {
    "sum-not-rescaled": {
        name: {"sum": ("l = l_old + Σ e^(S − m)", "{oldSum} + {added} = {sum}")}
        for name in ("fa1", "fa2")
    },
    "output-not-rescaled": {
        "fa2": {
            "output": ("O = O_old + P·V, first number", "{old_out} + {new_out} = {out}"),
        },
        "fa1": {
            "output": (
                "O = (l_old · O_old + P·V) / l, first number",
                "({oldSum} · {old_out} + {new_out}) / {sum} = {out}",
            ),
        },
    },
    "divided-every-step": {
        name: {
            "output": (
                "O = (α · O_old + P·V) / l, first number",
                "({rescale} · {old_out} + {new_out}) / {sum} = {out}",
            ),
            "divided": ("O is already divided", "{divided}"),
        }
        for name in ("fa1", "fa2")
    },
    "no-maximum": {
        name: {
            "max": ("m = 0, no maximum is taken", "m = {maximum}"),
            "alpha": ("α = e^(0 − 0)", "α = {rescale}"),
            "sum": ("l = l_old + Σ e^S", "{oldSum} + {added} = {sum}"),
        }
        for name in ("fa1", "fa2")
    },
    "log-base": {
        name: {
            "alpha": ("α = 2^(m_old − m)", "2^({oldMax} − {maximum}) = {rescale}"),
            "sum": (
                "l = α · l_old + Σ 2^(S − m)",
                "{rescale} · {oldSum} + {added} = {sum}",
            ),
        }
        for name in ("fa1", "fa2")
    },
    "tail-not-masked": {
        name: {
            "sum": (
                "l = α · l_old + Σ e^(S − m), padding too",
                "{rescale} · {oldSum} + {added} = {sum}",
            )
        }
        for name in ("fa1", "fa2")
    },
    "alpha-upside-down": {
        name: {"alpha": ("α = e^(m − m_old)", "e^({maximum} − {oldMax}) = {rescale}")}
        for name in ("fa1", "fa2")
    },
}
"""Name of the mistake -> implementation -> id -> (symbols, the same with numbers) in its place."""

STATE_ROWS = {
    "fa2": {
        "tileMax": "largest score of the tile",
        "oldMax": "maximum before (m)",
        "maximum": "maximum now (m)",
        "rescale": "rescale factor (α)",
        "oldSum": "sum before (l)",
        "added": "this tile adds",
        "sum": "sum now (l)",
    },
    "fa1": {
        "tileMax": "largest score of the tile",
        "oldMax": "maximum before (m)",
        "maximum": "maximum now (m)",
        "rescale": "rescale factor (α)",
        "oldSum": "sum before (l)",
        "added": "this tile adds",
        "sum": "sum now (l)",
    },
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
