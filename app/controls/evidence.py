"""The proof under the maps: that they are right, and that their matrix was never stored."""

from __future__ import annotations

import streamlit as st
import torch

from app import compute
from app.memory import in_words
from app.text import en
from vit.trace import Query, Trace


def evidence(traced: Trace, layer: int, query: Query, self_test: str) -> None:
    """Row sums and the largest error, measured now; the bytes that were not spent, by formula."""
    found = compute.evidence(traced, layer, query)
    part = traced.layers[layer]
    matrix = traced.heads * traced.tokens**2 * part.q.element_size()
    text = en.PROOF
    measured = [
        text["sum"].format(low=f"{found.row_sum_low:.6f}", high=f"{found.row_sum_high:.6f}"),
        text["error"].format(error=f"{found.largest_error:.1e}"),
    ]
    sample = text["sample"].format(rows=len(found.rows), heads=traced.heads, layer=layer)
    never = text["never"].format(tokens=traced.tokens, heads=traced.heads, bytes=in_words(matrix))
    ran = text["ran"].format(
        implementation=traced.implementation,
        dtype=str(part.q.dtype).removeprefix("torch."),
        device=device_name(part.q.device),
        self_test=self_test,
    )
    st.markdown(f"**{' · '.join(measured)}**  \n{sample}.")
    st.markdown(never)
    st.caption(ran)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return en.PROOF["cpu"]
