"""Start, progress, stop: a sweep on its way, and what has come of it so far."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from app import compute, costs, session
from app.controls import sweep as choices
from app.controls.sweep_charts import charts, figures_table, roof_chart
from app.figures.curves import Series
from app.figures.roofline import Roof
from app.guard import guarded, guarded_callback
from app.jobs import Job, Jobs, Request, Snapshot, Want
from app.memory import available_bytes
from app.state_speed import Sweep
from app.text.speed import CHART, HOW, RUN, SWEEP
from kernels.bench.forecast import refusal
from kernels.bench.reading import Reading
from kernels.bench.run_kernels import ON_CPU
from kernels.traffic.formula import WITH_LOOPS

MEASURED, LIVE = "measured sweep", "live"
GOES_ON = ("waiting", "running")
POLL_S = 1.0


def jobs() -> Jobs:
    return compute.shared().jobs


def latest() -> Job | None:
    """This visitor's last sweep."""
    return jobs().latest(session.owner(), "sweep")


def goes_on(job: Job | None) -> bool:
    return job is not None and job.snapshot.state in GOES_ON


def request_of(sweep: Sweep) -> Request:
    """All of the sweep, and this machine's roofs."""
    wants: list[Want] = ["time", "memory"]
    if set(sweep.implementations) & {*WITH_LOOPS}:
        wants.append("counted")
    if sweep.hbm and choices.on_gpu():
        wants.append("hbm")
    return Request(
        kind="sweep",
        entries=sweep.entries,
        wants=tuple(wants),
        try_anyway=sweep.try_anyway,
        roofs=True,
    )


# --- before -----------------------------------------------------------------------------------------


def start_choice(sweep: Sweep) -> None:
    """The button, how much there is to do, and what will not fit."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            RUN["start"],
            key="sweep-start",
            type="primary",
            on_click=start,
            args=(sweep,),
            disabled=goes_on(latest()),
        )
        st.markdown(to_do(sweep), width="content")
    with st.container():
        for name, value, sentence in will_not_fit(sweep):
            at = f"{value:,} {SWEEP[sweep.over]}"
            note = RUN["will_not_fit"].format(name=name, at=at, sentence=sentence)
            st.caption(f"{note} {RUN['tried'] if sweep.try_anyway else RUN['left_out']}")


def to_do(sweep: Sweep) -> str:
    """How much there is to measure."""
    sizes = len(sweep.values)
    names = sum(is_timed(name) for name in sweep.implementations)
    measured = RUN["to_do" if names else "bytes_only"].format(
        sizes=sizes, names=names, count=sizes * names
    )
    seconds = costs.counting_seconds(sweep.entries)
    if seconds < 1:
        return measured
    took = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{measured} {RUN['to_count'].format(seconds=took)}"


def is_timed(name: str) -> bool:
    """False where only the bytes can be had here: what an interpreted kernel takes says nothing."""
    return compute.device().type != "cpu" or name in ON_CPU


def will_not_fit(sweep: Sweep) -> Iterator[tuple[str, int, str]]:
    """Implementation, first value and sentence of what is forecast to run out of memory."""
    device = compute.device()
    free = available_bytes(device)
    for name in sweep.implementations:
        if not is_timed(name):
            continue  # it is not run here, so it needs nothing
        for value, problem in zip(sweep.values, sweep.problems, strict=True):
            sentence = refusal(problem, name, sweep.direction, device, free)
            if sentence is not None:
                yield name, value, sentence
                break


@guarded_callback
def start(sweep: Sweep) -> None:
    st.session_state[MEASURED] = sweep
    jobs().start(session.owner(), request_of(sweep))


@guarded_callback
def stop() -> None:
    job = latest()
    if job is not None:
        job.stop()


# --- meanwhile and after ----------------------------------------------------------------------------


def results(sweep: Sweep) -> None:
    """What has been measured; asked again each second while a sweep is on its way, and only then."""
    live = goes_on(latest())
    st.fragment(draw, run_every=POLL_S if live else None)(sweep, live)


@guarded
def draw(sweep: Sweep, was_live: bool) -> None:
    """Progress, charts, table."""
    job = latest()
    now = Snapshot() if job is None else job.snapshot
    live = job is not None and now.state in GOES_ON
    if was_live and not live:
        st.rerun()  # the whole page, so that nobody asks any more and Start is back
    if job is not None:
        job.touch()
    # While it runs, its own settings; afterwards the ones chosen, with whatever is known of them.
    shown = st.session_state.get(MEASURED, sweep) if live else sweep
    series = series_of(shown, now.readings)
    # In a place of its own, so that what stands below keeps its place on the page.
    with st.container(key="sweep-status"):
        if job is None:
            st.info(RUN["before"])
        else:
            progress(now)
        if shown != sweep:
            st.caption(RUN["other_settings"])
        if any(reading.busy for reading in series.readings):
            st.warning(RUN["busy"])
    gpu = choices.on_gpu()
    charts(series, LIVE, shown.hbm, costs.formulas(series.readings))
    st.caption(" ".join((HOW["laws"], HOW["crosses"], HOW["png"])))
    st.caption(HOW["gpu_bytes"] if gpu else HOW["cpu_bytes"])
    roof_chart(series, LIVE, roof_of(now), "roofline_gpu" if gpu else "roofline_cpu")
    figures_table(series, LIVE)


def progress(now: Snapshot) -> None:
    """A bar and Stop while it goes on, else how it ended."""
    timed = [reading for reading in now.readings if is_timed(reading.implementation)]
    counts = {"done": sum(one.time_us is not None for one in timed), "count": len(timed)}
    if now.state in GOES_ON:
        waits = RUN["waiting_one"] if now.ahead == 1 else RUN["waiting"].format(ahead=now.ahead)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.progress(
                min(max(now.progress, 0.0), 1.0),
                waits if now.state == "waiting" else now.sentence or RUN["running"],
            )
            st.button(RUN["stop"], key="sweep-stop", on_click=stop)
    elif now.state == "stopped":
        st.info(RUN["stopped"].format(**counts))
    elif now.state == "failed":
        st.error(RUN["failed"].format(sentence=now.trouble or RUN["failed_unknown"]))
    else:
        st.success(RUN["done"].format(**counts))
        if now.trouble:
            st.warning(now.trouble)


def series_of(sweep: Sweep, readings: tuple[Reading, ...]) -> Series:
    """The sweep's readings: of the last job, else of any visitor here before, else empty."""
    own = {(r.problem, r.implementation, r.direction): r for r in readings}
    found = tuple(
        own.get(entry) or jobs().known(*entry) or Reading(*entry) for entry in sweep.entries
    )
    untimed = frozenset(name for name in sweep.implementations if not is_timed(name))
    return Series(sweep.over, sweep.values, found, untimed=untimed)


def roof_of(now: Snapshot) -> Roof | None:
    """This machine's own roofs, once they were measured."""
    roofs = now.roofs
    if roofs is None:
        return None
    return Roof(roofs.bytes_per_s, roofs.flops_per_s, CHART["measured"])
