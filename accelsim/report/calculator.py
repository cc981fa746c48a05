"""Cost of a load on each option, break-even between them and headroom, as a section whose sliders
compute it again in the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from accelsim.economics.load_cost import LoadOption, cheapest_range, load_cost
from accelsim.economics.result import HOURS_PER_MONTH
from accelsim.plain import Document
from accelsim.quantity import number
from accelsim.report.page import Section, figure, trace
from accelsim.report.parts import left_out

#: Loads of the lines: a hundredth to a hundred times the one asked for.
_DECADES = 2.0
_LOADS = 121
#: Pixels of the figure without its legend, and of a line of it.
_HEIGHT = 400
_LEGEND_HEIGHT = 20
#: Options of a figure that a reader can tell apart.
_MOST_OPTIONS = 24


def calculator_section(
    options: Sequence[LoadOption],
    load_per_s: float,
    unit: str,
    text: str,
    *,
    utilisation_fraction: float = 1.0,
    name: str = "break-even",
) -> Section:
    """Cost of a load by option, with sliders.

    Args:
        options: Ways to carry it, at least one; more than a figure holds are left out, the dearest
            first.
        load_per_s: Load the page starts with.
        unit: What is made, as "images".
        text: Where the prices come from.
        utilisation_fraction: Share of a device's rate that the page starts with.
        name: Id of the table.
    """
    start = (load_per_s, utilisation_fraction)
    ordered = sorted(options, key=lambda option: load_cost(option, *start).usd_per_month)
    shown = ordered[:_MOST_OPTIONS]
    loads_per_s = (load_per_s * np.logspace(-_DECADES, _DECADES, _LOADS)).tolist()
    picture = figure(
        _cost_lines(shown, loads_per_s, *start),
        f"{unit} per second",
        "USD a month",
        "xy",
        height=_HEIGHT + _LEGEND_HEIGHT * len(shown),
    )
    data = {
        "options": [asdict(option) for option in shown],
        "load_per_s": load_per_s,
        "loads_per_s": loads_per_s,
        "utilisation_fraction": utilisation_fraction,
        "hours_per_month": HOURS_PER_MONTH,
        "unit": unit,
    }
    ranges = cheapest_range(shown, loads_per_s, utilisation_fraction)
    rows = [
        {
            **asdict(load_cost(option, *start)),
            "option": option.name + (" (cheapest)" if option is shown[0] else ""),
            "won": " to ".join(map(number, ranges.get(option.name, ()))) or "nowhere",
        }
        for option in shown
    ]
    columns = (
        "option | >devices=unit_count | >USD a month=usd_per_month | >per 1,000=usd_per_1000 | "
        f">headroom=headroom_fraction | cheapest, {unit}/s=won"
    )
    text += left_out(len(options) - len(shown), "dearer options are left out")
    title = "Cost of a load, break-even and headroom"
    return replace(Section.of(name, title, columns, rows, text, picture), calculator=data)


def _cost_lines(
    options: Sequence[LoadOption],
    loads_per_s: list[float],
    load_per_s: float,
    utilisation_fraction: float,
) -> list[Document]:
    """A line of USD a month over the load for each option, and the load the page starts with."""
    costs_usd = [
        [load_cost(option, load, utilisation_fraction).usd_per_month for load in loads_per_s]
        for option in options
    ]
    traces = [
        trace(option.name, loads_per_s, costs, "lines")
        for option, costs in zip(options, costs_usd, strict=True)
    ]
    ends = [min(map(min, costs_usd)), max(map(max, costs_usd))]
    dotted = {"hoverinfo": "skip", "line": {"dash": "dot", "color": "#7f8a94"}}
    return [*traces, trace("load", [load_per_s] * 2, ends, "lines", **dotted)]
