"""A sweep drawn: four charts that share what grows, a roofline, the table and its file."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import costs
from app.figures import curves, logs, table
from app.figures.curves import Formulas, Series
from app.figures.roofline import Roof, roofline
from app.text.speed import CHART, HOW, SWEEP, TABLE

ROOM_PX = 80
"""More than other charts for the roofline: on a phone the numbers under it are turned, and take so much."""


def charts(series: Series, name: str, hbm: bool, formulas: Formulas) -> None:
    """Two by two; one under the other on a phone. `name` keeps the keys of two sweeps apart."""
    figures = {
        "time": curves.time_chart(series),
        "rate": curves.rate_chart(series),
        "memory": curves.memory_chart(series),
        "traffic": curves.traffic_chart(series, formulas, hbm),
    }
    for kinds in (("time", "rate"), ("memory", "traffic")):
        # Beside each other they are as high as the higher one, so that their axes stay level.
        height = max(logs.height_for(figures[kind]) for kind in kinds)
        for kind, column in zip(kinds, st.columns(2), strict=True):
            with column:
                show(figures[kind].update_layout(height=height), kind, name, series)
    with st.container():
        for sentence in missing(series):
            st.caption(sentence)


def missing(series: Series) -> list[str]:
    """Why some could be run at no value at all: one sentence each."""
    reasons = curves.nowhere(series, "memory") | curves.nowhere(series, "time")
    return list(dict.fromkeys(reasons.values()))


def roof_chart(series: Series, name: str, roof: Roof | None, how: str) -> None:
    """The roofline, with what its bytes are beside it: the words `how` of HOW."""
    left, right = st.columns([3, 1], vertical_alignment="center")
    with left:
        figure = roofline(series, costs.moved(series.source), roof)
        height = logs.height_for(figure) + ROOM_PX
        show(figure.update_layout(height=height), "roofline", name, series)
    with right:
        st.caption(HOW[how])
        st.caption(HOW["roofline"])
        if roof is None:
            st.caption(HOW[f"no_roofs_{name}"])


def show(figure: Any, kind: str, name: str, series: Series) -> None:
    """One chart; its camera button saves it sharp and under a name that says what it is."""
    st.plotly_chart(
        figure,
        key=f"{name}-{kind}",
        width="stretch",
        config=config(f"flashlens-{name}-{kind}-over-{series.over}"),
        alt=CHART[f"alt_{kind}"].format(over=SWEEP[series.over]),
    )


def config(filename: str) -> dict[str, Any]:
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
        "toImageButtonOptions": {"format": "png", "filename": filename, "scale": 2},
    }


def figures_table(series: Series, name: str, architecture: str | None = None) -> None:
    """All figures with their sources, and the same as a file."""
    found = table.rows(series, costs.formulas(series.readings, architecture))
    columns = table.filled(found)
    st.dataframe(
        [{column: row[column] for column in columns} for row in found],
        key=f"{name}-table",
        width="stretch",
        hide_index=True,
        placeholder=TABLE["none"],
        column_config={
            name: st.column_config.NumberColumn(format="%.2f") for name in table.FRACTIONS
        },
    )
    st.download_button(
        TABLE["csv"],
        table.as_csv(found, columns, series),
        f"flashlens-{name}-over-{series.over}.csv",
        "text/csv",
        key=f"{name}-csv",
        help=TABLE["csv_help"],
        on_click="ignore",
    )
