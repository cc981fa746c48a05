"""Quantities that change over time, such as power and memory, as a figure with its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.report.page import Cell, DataTable, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, short
from accelsim.report.quantity import duration

if TYPE_CHECKING:
    from accelsim.simulation.timeline import StepFunction
    from accelsim.workloads.graph import FloatArray

#: Steps of a curve at most.
_MAX_STEPS = 1_000


@frozen(eq=False)
class Curve:
    """A quantity over time.

    Attributes:
        name: What it is, with its unit.
        steps: Its values.
        write: How a value is written.
    """

    name: str
    steps: StepFunction
    write: Callable[[float | None], str]


def curves_section(
    name: str,
    title: str,
    curves: Sequence[Curve],
    end_s: float,
    text: str,
    *,
    left: int = 1,
) -> Section:
    """Curves from 0 to the end, the first on the left axis, the others on the right.

    Args:
        name: Id of the table.
        title: Heading.
        curves: What is drawn; nothing is known where there is none.
        end_s: Where they end.
        text: What it says.
        left: How many are on the left axis.
    """
    traces: list[Document] = []
    rows: list[tuple[str | Cell, ...]] = []
    for place, curve in enumerate(curves):
        edges, values = _resampled(curve.steps, end_s)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label(curve.name),
                "x": short(edges),
                "y": short(np.append(values, values[-1:])),
                "line": {"shape": "hv", "color": COLOURS[place]},
                "yaxis": "y" if place < left else "y2",
            }
        )
        rows += [
            (curve.name, cell(time, duration), cell(value, curve.write))
            for time, value in zip(edges.tolist(), values.tolist(), strict=False)
        ]
    own = {"exponentformat": "SI", "rangemode": "tozero"}
    beside, right = (
        axis(", ".join(curve.name for curve in part), **own)
        for part in (curves[:left], curves[left:])
    )
    right["tickmode"] = "auto"  # else its ticks are the left axis's, at odd values
    layout = {
        "xaxis": axis("time", ticksuffix="s", exponentformat="SI", minexponent=0),
        "yaxis": beside,
        "yaxis2": right | {"overlaying": "y", "side": "right", "showgrid": False},
    }
    peaks = ", ".join(f"{one.name} at most {one.write(one.steps.maximum)}" for one in curves)
    table = DataTable(("quantity", ">from", ">value"), rows)
    is_coarse = any(len(one.steps.time_s) > _MAX_STEPS for one in curves)
    parts = f"; means of {_MAX_STEPS - 1:,} equal parts" if is_coarse else ""
    said = f"{text}{parts}; {peaks}." if curves else "Unknown."
    return Section(name, title, table, said, figure(traces, **layout))


def _resampled(steps: StepFunction, end_s: float) -> tuple[FloatArray, FloatArray]:
    """Edges and values of a step function up to the end; means of equal parts where it has too
    many steps.
    """
    inside = steps.time_s[(steps.time_s > 0) & (steps.time_s < end_s)]
    edges = np.concatenate([[0.0], inside, [end_s]])
    if len(edges) <= _MAX_STEPS:
        return edges, steps.at(edges[:-1])
    total = np.concatenate([[0.0], np.cumsum(steps.at(edges[:-1]) * np.diff(edges))])
    coarse = np.linspace(0.0, end_s, _MAX_STEPS)
    return coarse, np.diff(np.interp(coarse, edges, total)) / np.diff(coarse)
