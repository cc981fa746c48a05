"""Quantities that change over time, such as power and memory, as a figure with its table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.quantity import Writer
from accelsim.report.columns import Cell
from accelsim.report.page import Section, axis, figure, trace
from accelsim.report.parts import COLOURS, short

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
    write: Writer


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
    rows: list[Document] = []
    for index, curve in enumerate(curves):
        edges, values = _resampled(curve.steps, end_s)
        shown = short(np.append(values, values[-1:]))
        axes = {"yaxis": "y" if index < left else "y2"}
        line = {"line": {"shape": "hv", "color": COLOURS[index]}}
        traces.append(trace(curve.name, short(edges), shown, "lines", **line, **axes))
        steps = zip(edges.tolist(), values.tolist(), strict=False)
        # values that differ by rounding are equal
        for _, equal in groupby(steps, key=lambda step: f"{step[1]:.9g}"):
            time, value = next(equal)
            cell = Cell(curve.write(value), value)
            rows.append({"quantity": curve.name, "from_s": time, "value": cell})
    beside, right = (
        axis(", ".join(curve.name for curve in group), rangemode="tozero")
        for group in (curves[:left], curves[left:])
    )
    # else its ticks are the left axis's, at odd values
    right |= {"tickmode": "auto", "overlaying": "y", "side": "right", "showgrid": False}
    time = axis("time", ticksuffix="s", minexponent=0)
    peaks = ", ".join(
        f"{curve.name} at most {curve.write(curve.steps.maximum)}" for curve in curves
    )
    is_coarse = any(len(curve.steps.time_s) > _MAX_STEPS for curve in curves)
    parts = f"; means of {_MAX_STEPS - 1:,} equal parts" if is_coarse else ""
    text = f"{text}{parts}; {peaks}." if curves else "Unknown."
    picture = figure(traces, xaxis=time, yaxis=beside, yaxis2=right)
    columns = "quantity | >from=from_s | >value"
    return Section.of(name, title, columns, rows, text, picture, most=len(rows))


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
