"""The sweep that was recorded on another machine: its own section, never in a chart with live figures."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from app import compute, costs
from app.controls.cost_recorded import readings
from app.controls.sweep_charts import charts, figures_table, roof_chart
from app.figures.curves import Series
from app.figures.roofline import Roof
from app.text.speed import CHART, RECORDED, SWEEP
from kernels.bench.reading import Reading
from kernels.bench.recorded import recorded_roofs, versions_together

NAME = "recorded"
DIRECTION = "recorded-direction"
SHOWN = ("forward", "forward+backward", "backward")


def recorded_section() -> None:
    """Open where there is no GPU, folded away where this machine has its own figures."""
    found = readings()
    if not found:
        st.caption(RECORDED["none"])
        return
    machine = found[0].machine
    title = RECORDED["title"].format(machine=machine)
    with st.expander(title, expanded=compute.device().type != "cuda"):
        st.markdown(about(found))
        by_direction = {way: largest(found, way) for way in SHOWN}
        ways = [way for way, readings in by_direction.items() if readings]
        way = ways[0]
        if len(ways) > 1:
            way = st.segmented_control(
                RECORDED["direction"],
                ways,
                default=ways[0],
                required=True,
                key=DIRECTION,
                format_func=lambda name: SWEEP[name],
            )
        draw(by_direction[str(way)], machine)


def draw(readings: tuple[Reading, ...], machine: str) -> None:
    """The same charts, from the committed file."""
    problem = readings[0].problem
    st.caption(
        RECORDED["what"].format(
            batch=problem.batch,
            heads=problem.heads,
            head_dim=problem.head_dim,
            dtype=problem.dtype,
        )
    )
    tokens = tuple(sorted({reading.problem.queries for reading in readings}))
    series = Series("tokens", tokens, readings, CHART["recorded"])
    architecture = costs.ARCHITECTURES.get(machine, "any")
    hbm = any(reading.hbm_cold or reading.hbm_warm for reading in readings)
    charts(series, NAME, hbm, {})  # measured bytes alone: what is asked for stands in the table
    roof_chart(series, NAME, recorded_roof(machine), "roofline_gpu" if hbm else "roofline_formula")
    figures_table(series, NAME, architecture)


def largest(found: Iterable[Reading], direction: str) -> tuple[Reading, ...]:
    """The recorded sweep over tokens with the most of them: all else is the same in its readings."""
    groups: dict[tuple[object, ...], list[Reading]] = {}
    for reading in found:
        p = reading.problem
        if reading.direction == direction and p.queries == p.keys:
            fixed = (p.batch, p.heads, p.head_dim, p.dtype, p.causal, p.kv_heads, reading.machine)
            groups.setdefault(fixed, []).append(reading)
    most = max(groups.values(), key=lambda group: len({r.problem for r in group}), default=[])
    return tuple(sorted(most, key=lambda reading: reading.problem.queries))


def about(found: Iterable[Reading]) -> str:
    """With which versions, at which commit, on which day."""
    found = tuple(found)
    versions = versions_together(reading.versions for reading in found)
    days = dict.fromkeys(text for r in found for text in r.when.split("; ") if text)
    return RECORDED["about"].format(versions=versions, when=", ".join(days))


def recorded_roof(machine: str) -> Roof | None:
    """The roofs that were recorded on that machine, or None."""
    roofs = recorded_roofs(machine)
    if roofs is None:
        return None
    return Roof(roofs.bytes_per_s, roofs.flops_per_s, CHART["recorded"])
