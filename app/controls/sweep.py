"""The choices of a sweep, on one line: what grows, what is fixed, who takes part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from app import compute, session
from app.guard import guarded_callback
from app.state_speed import (
    DIRECTIONS,
    DTYPES,
    FEWEST,
    IN_ADDRESS,
    ON_CPU,
    ON_GPU,
    VALUES,
    Sweep,
    from_url,
    growing,
    pixels,
    to_url,
)
from app.text.speed import SWEEP
from kernels import implementations
from kernels.registry import IMPLEMENTATIONS

KEPT = "kept sweep"


def usual() -> Sweep:
    """What is measured on this machine unless something else is chosen."""
    if not on_gpu():
        return ON_CPU
    missing = not_here(ON_GPU)
    runs = tuple(name for name in ON_GPU.implementations if name not in missing)
    return replace(ON_GPU, implementations=runs)


def on_gpu() -> bool:
    return compute.device().type == "cuda"


def chosen() -> Sweep:
    """What the address asks for; where it says nothing, what this visitor chose last."""
    params = st.query_params.to_dict()
    kept = st.session_state.get(KEPT)
    if kept is not None and not {*IN_ADDRESS.values()} & params.keys():
        return kept
    found, dropped = from_url(params, usual())
    for name in dropped:
        session.tell(SWEEP["bad_link"].format(name=name))
    if not on_gpu():  # there are no counters to read, whatever the link says
        found = replace(found, hbm=False)
    return found


def write(sweep: Sweep) -> None:
    """Put the sweep into the address beside what else stands there."""
    st.session_state[KEPT] = sweep
    params, mine = st.query_params.to_dict(), to_url(sweep)
    if any(params.get(name) != value for name, value in mine.items()):
        st.query_params.from_dict(params | mine)


def sweep_choice(sweep: Sweep) -> None:
    """All choices; the line wraps where it is too narrow."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="sweep-choices"):
        select("over", list(VALUES), sweep.over, lambda name: SWEEP[name], width=120)
        upto = VALUES[sweep.over][FEWEST - 1 :]
        value = getattr(sweep, sweep.over)
        select(
            sweep.over,
            upto,
            value,
            in_words(sweep.over),
            label=SWEEP["upto"],
            help=SWEEP["upto_help"].format(values=", ".join(f"{x:,}" for x in sweep.values)),
            width=170 if sweep.over == "tokens" else 90,
        )
        for name in VALUES:
            if name != sweep.over:
                label, width = SWEEP[f"fixed_{name}"], 170 if name == "tokens" else 90
                now = getattr(sweep, name)
                select(name, VALUES[name], now, in_words(name), label=label, width=width)
        select("dtype", DTYPES, sweep.dtype, width=120)
        select("direction", DIRECTIONS, sweep.direction, lambda name: SWEEP[name], width=180)
    with st.container(horizontal=True, vertical_alignment="bottom", key="sweep-who"):
        who(sweep)
        toggle("causal", sweep.causal)
        if on_gpu():
            toggle("hbm", sweep.hbm)
        toggle("try_anyway", sweep.try_anyway)


def who(sweep: Sweep) -> None:
    """The implementations that can run here, and those that a link asks for."""
    missing = not_here(sweep)
    st.session_state[key("implementations")] = list(sweep.implementations)
    st.pills(
        SWEEP["implementations"],
        [name for name in IMPLEMENTATIONS if name not in missing or name in sweep.implementations],
        selection_mode="multi",
        format_func=lambda name: SWEEP["not_here"].format(name=name) if name in missing else name,
        key=key("implementations"),
        on_change=change,
        args=("implementations",),
        width="content",
        wrap=True,
    )


def not_here(sweep: Sweep) -> dict[str, str]:
    """name -> why it cannot run this sweep's smallest problem on this machine."""
    found = implementations(sweep.problems[0])
    return {name: sentence for name, sentence in found.items() if sentence is not None}


def missing_choice(sweep: Sweep) -> None:
    """Folded away: who cannot run here, each with its sentence."""
    missing = not_here(sweep)
    with st.container():
        if missing:
            expander_of(missing)


def expander_of(missing: dict[str, str]) -> None:
    with st.expander(SWEEP["missing"]):
        for name, sentence in missing.items():
            st.markdown(SWEEP["missing_one"].format(name=name, sentence=sentence))


def select(
    field: str,
    options: Sequence[Any],
    value: Any,
    words: Callable[[Any], str] = str,
    **more: Any,
) -> None:
    """A list whose choice goes into the address."""
    st.session_state[key(field)] = value
    label = more.pop("label", None) or SWEEP[field]
    st.selectbox(
        label,
        options,
        format_func=words,
        key=key(field),
        on_change=change,
        args=(field,),
        **more,
    )


def toggle(field: str, value: bool) -> None:
    st.session_state[key(field)] = value
    st.toggle(
        SWEEP[field], key=key(field), on_change=change, args=(field,), help=SWEEP[f"{field}_help"]
    )


def in_words(name: str) -> Callable[[int], str]:
    """A value as the list shows it; tokens with the picture that has as many."""

    def words(value: int) -> str:
        side = pixels(value) if name == "tokens" else None
        return f"{value:,}" if side is None else SWEEP["pixels"].format(tokens=value, side=side)

    return words


def key(field: str) -> str:
    return f"sweep-{field}"


@guarded_callback
def change(field: str) -> None:
    """Take over one choice."""
    sweep, value = chosen(), st.session_state[key(field)]
    if field == "over":
        write(growing(sweep, value, usual()))
    elif field == "implementations":
        in_order = tuple(name for name in IMPLEMENTATIONS if name in value)
        if not in_order:
            session.tell(SWEEP["no_implementation"])
            return
        write(replace(sweep, implementations=in_order))
    else:
        write(replace(sweep, **{field: value}))
