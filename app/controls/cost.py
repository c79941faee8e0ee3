"""The side panel: what the attention on the screen costs, on this machine and recorded elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

import streamlit as st

from app import compute, session
from app.arrival import settled
from app.controls.cost_chip import chip_of, chip_scale, chip_words
from app.controls.cost_figures import Known, Row, energy, hbm_row, memory_row, time_row
from app.controls.cost_known import choices, here_words, known, request, unfit, usual
from app.controls.cost_recorded import as_known, nearest, readings
from app.controls.cost_work import progress
from app.figures import bars
from app.guard import guarded, guarded_callback
from app.jobs import Job
from app.state import State
from app.text.cost import CHIP, PANEL, RECORDED, ROW
from app.theme import COST_BODY
from kernels import Problem
from kernels.traffic.roofs import machine

POLL_S = 0.7
"""How often the figures are drawn anew while they are being measured, and only then."""

BESIDE = ("naive", "fa2", "fa3")
"""Whose recorded figures stand beside, those of them that were recorded, unless the visitor has chosen."""

MEASURE, STOP, TRY, COMPARE = "cost measure", "cost stop", "cost try", "cost compare"


@st.fragment
@guarded
def cost_panel() -> None:
    """Bytes, time and memory of one layer's attention, and the button that measures them."""
    title = escape(PANEL["title"])
    # The same text at every run: a new one would close what the visitor has opened.
    st.html(f"<h2>{title}</h2><details class='cost-fold'><summary>{title}</summary></details>")
    with st.container(key=COST_BODY, gap="small"):
        state = settled()
        problem = compute.problem(state)
        subject(problem)
        names = state.compare or usual(problem, compute.device())
        (live_figures if at_work() else still_figures)(problem, names)
        buttons(problem, names)
        why_not_everywhere(problem, names)
        chip(problem)
        recorded_beside(problem, state.compare or BESIDE)
        compare_choice(state, problem, names)


def subject(problem: Problem) -> None:
    """What is measured, and where."""
    words = PANEL["subject"].format(
        tokens=f"{problem.queries:,}", heads=problem.heads, dtype=problem.dtype
    )
    layer = PANEL["layer"].format(device=machine(compute.device()))
    st.html(f"<p><strong>{escape(words)}</strong></p><p class='cost-quiet'>{escape(layer)}</p>")


# --- the figures --------------------------------------------------------------------------------------


@st.fragment(run_every=POLL_S)
@guarded
def live_figures(problem: Problem, names: Sequence[str]) -> None:
    """Drawn again and again while a measurement runs; its end redraws the page, which ends this."""
    job = my_job()
    if job is None or job.over:
        st.rerun()
    job.touch()
    figures(problem, names)


@st.fragment
@guarded
def still_figures(problem: Problem, names: Sequence[str]) -> None:
    figures(problem, names)


def figures(problem: Problem, names: Sequence[str]) -> None:
    """Three rows of bars, and how far the measurement is."""
    rows(all_known(problem, names))
    st.html(progress(my_job(), problem))


def rows(found: Sequence[Known], recorded: bool = False) -> None:
    drawn: dict[str, Row] = {
        "hbm": hbm_row(found, recorded),
        "time": time_row(found, recorded),
        "memory": memory_row(found, recorded),
    }
    for name, (groups, notes) in drawn.items():
        said = energy(found) if name == "time" else None
        if groups:
            st.html(bars.row(ROW[name], groups, [*notes, *([said] if said else [])], recorded))


def all_known(problem: Problem, names: Sequence[str]) -> list[Known]:
    return known(compute.shared().jobs, my_job(), problem, names, compute.device())


def my_job() -> Job | None:
    return compute.shared().jobs.latest(session.owner(), "panel")


def at_work() -> bool:
    job = my_job()
    return job is not None and not job.over


# --- what can be pressed ------------------------------------------------------------------------------


def buttons(problem: Problem, names: Sequence[str]) -> None:
    """Measure, or stop where it runs; and the attempt at what is predicted not to fit."""
    if at_work():
        st.button(PANEL["stop"], key=STOP, on_click=stop, width="stretch")
        return
    st.button(
        PANEL["measure"],
        key=MEASURE,
        on_click=measure,
        args=(problem, names),
        help=PANEL["measure_help"],
        type="primary",
        width="stretch",
    )
    if unfit(all_known(problem, names)):
        st.button(
            PANEL["try"],
            key=TRY,
            on_click=measure,
            args=(problem, names, True),
            help=PANEL["try_help"],
            width="stretch",
        )


@guarded_callback
def measure(problem: Problem, names: Sequence[str], try_anyway: bool = False) -> None:
    wanted = request(problem, names, compute.device(), try_anyway)
    compute.shared().jobs.start(session.owner(), wanted)


@guarded_callback
def stop() -> None:
    job = my_job()
    if job is not None:
        job.stop()


def compare_choice(state: State, problem: Problem, names: Sequence[str]) -> None:
    """Any two or more implementations; fewer are not taken."""
    offered = choices(problem, compute.device())
    with st.expander(PANEL["compare"]):
        st.session_state[COMPARE] = list(names)
        st.multiselect(
            PANEL["compare_label"],
            [*offered, *(name for name in names if name not in offered)],
            key=COMPARE,
            on_change=change_compare,
        )


@guarded_callback
def change_compare() -> None:
    names = tuple(st.session_state[COMPARE])
    if len(names) >= 2:
        state = session.state()
        as_usual = names == usual(compute.problem(state), compute.device())
        session.write(replace(state, compare=None if as_usual else names))


# --- what stands beside -------------------------------------------------------------------------------


def why_not_everywhere(problem: Problem, names: Sequence[str]) -> None:
    """Why an implementation stands in some of the rows only."""
    words = here_words(all_known(problem, names), problem, compute.device())
    if words:
        st.html("".join(f"<p class='cost-quiet'>{escape(sentence)}</p>" for sentence in words))


def chip(problem: Problem) -> None:
    """The memory on the chip, and whether N x N fits into it."""
    sizes = chip_of(compute.device())
    fits, sram = chip_words(problem, sizes)
    st.html(
        f"<h3>{escape(CHIP['title'])}</h3>{chip_scale(problem, sizes)}"
        f"<p>{escape(fits)}</p><p class='cost-quiet'>{escape(sram)}</p>"
    )


def recorded_beside(problem: Problem, names: Sequence[str]) -> None:
    """The nearest recorded problem, in a place of its own."""
    found = nearest(readings(), problem, names)
    if not found:
        return
    at = RECORDED["at"].format(
        tokens=f"{found[0].problem.queries:,}",
        dtype=found[0].problem.dtype,
        when=found[0].when,
    )
    title = RECORDED["title"].format(machine=found[0].machine)
    st.html(f"<h3>{escape(title)}</h3><p class='cost-quiet'>{escape(at)}</p>")
    rows(as_known(found), recorded=True)
