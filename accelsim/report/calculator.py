"""Cost of a load on each option, break-even between them and headroom, as a section whose sliders
compute it again in the page.

An option is a device that is rented by the hour, or bought: its price over its life and its
electricity by the hour. Cost of a load is whole devices times the hourly price (see
`capacity.breakeven` for the lines that cross); ``page.js`` has the same formulas for the sliders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.quantity import number
from accelsim.report.page import Section, figure, trace
from accelsim.report.parts import left_out

_HOURS_PER_MONTH = HOURS_PER_YEAR / 12
_SECONDS_PER_HOUR = 3600.0
#: Loads of the lines: a hundredth to a hundred times the one asked for.
_DECADES = 2.0
_LOADS = 121
#: Pixels of the figure without its legend, and of a line of it.
_HEIGHT = 400
_LEGEND_HEIGHT = 20
#: Options of a figure that a reader can tell apart.
_MOST_OPTIONS = 24


@frozen
class LoadOption:
    """A way to carry a load.

    Attributes:
        name: Device or replica, with how it is paid.
        rate_per_s: Results per second of one, > 0.
        usd_per_hour: Price of one for an hour.
        fixed_usd_per_month: Paid whatever the load: development over its life.
        devices: Devices of one.
    """

    name: str
    rate_per_s: float
    usd_per_hour: float
    fixed_usd_per_month: float = 0.0
    devices: int = 1


@frozen
class LoadCost:
    """What an option takes for a load.

    Attributes:
        unit_count: Devices.
        usd_per_month: Cost of a mean month.
        usd_per_1000: Cost of 1,000 results at that load.
        headroom_fraction: Load they could carry beyond it, within the utilisation.
    """

    unit_count: int
    usd_per_month: float
    usd_per_1000: float
    headroom_fraction: float


def load_cost(option: LoadOption, load_per_s: float, utilisation_fraction: float) -> LoadCost:
    """Whole devices that carry a load, and their cost.

    Args:
        option: The way to carry it.
        load_per_s: Results per second, > 0.
        utilisation_fraction: Share of a device's rate that is used at most, in (0, 1].
    """
    capacity_per_s = option.rate_per_s * utilisation_fraction
    count = max(1, math.ceil(load_per_s / capacity_per_s - 1e-9))
    monthly = option.fixed_usd_per_month + count * option.usd_per_hour * _HOURS_PER_MONTH
    made = load_per_s * _SECONDS_PER_HOUR * _HOURS_PER_MONTH
    devices = count * option.devices
    return LoadCost(devices, monthly, 1e3 * monthly / made, count * capacity_per_s / load_per_s - 1)


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
    asked = (load_per_s, utilisation_fraction)
    ordered = sorted(options, key=lambda one: load_cost(one, *asked).usd_per_month)
    shown = ordered[:_MOST_OPTIONS]
    loads = load_per_s * np.logspace(-_DECADES, _DECADES, _LOADS)
    drawn = figure(
        _cost_lines(shown, loads.tolist(), *asked),
        f"{unit} per second",
        "USD a month",
        "xy",
        height=_HEIGHT + _LEGEND_HEIGHT * len(shown),
    )
    data = {
        "options": [asdict(one) for one in shown],
        "load_per_s": load_per_s,
        "loads_per_s": loads.tolist(),
        "utilisation_fraction": utilisation_fraction,
        "hours_per_month": _HOURS_PER_MONTH,
        "unit": unit,
    }
    ranges = cheapest_range(shown, loads.tolist(), utilisation_fraction)
    rows = [
        {
            **asdict(load_cost(one, *asked)),
            "option": one.name + (" (cheapest)" if index == 0 else ""),
            "won": " to ".join(map(number, ranges.get(one.name, ()))) or "nowhere",
        }
        for index, one in enumerate(shown)
    ]
    columns = (
        "option | >devices=unit_count | >USD a month=usd_per_month | >per 1,000=usd_per_1000 | "
        f">headroom=headroom_fraction | cheapest, {unit}/s=won"
    )
    said = text + left_out(len(options) - len(shown), "dearer options are left out")
    title = "Cost of a load, break-even and headroom"
    return replace(Section.of(name, title, columns, rows, said, drawn), calculator=data)


def _cost_lines(
    options: Sequence[LoadOption], loads: list[float], load_per_s: float, utilisation: float
) -> list[Document]:
    """A line of USD a month over the load for each option, and the load the page starts with."""
    costs = [
        [load_cost(option, load, utilisation).usd_per_month for load in loads] for option in options
    ]
    ends = [min(map(min, costs)), max(map(max, costs))]
    dotted = {"hoverinfo": "skip", "line": {"dash": "dot", "color": "#7f8a94"}}
    return [
        *(
            trace(option.name, loads, cost, "lines")
            for option, cost in zip(options, costs, strict=True)
        ),
        trace("load", [load_per_s] * 2, ends, "lines", **dotted),
    ]


def cheapest_range(
    options: Sequence[LoadOption], loads_per_s: Sequence[float], utilisation_fraction: float
) -> dict[str, tuple[float, float]]:
    """First and last load at which an option is the cheapest, by its name; of equals the first.

    Args:
        options: Ways to carry the loads.
        loads_per_s: Loads, ascending.
        utilisation_fraction: As in `load_cost`.
    """
    cheapest_range: dict[str, tuple[float, float]] = {}
    for load in loads_per_s:
        best = min(
            options, key=lambda one: load_cost(one, load, utilisation_fraction).usd_per_month
        )
        cheapest_range[best.name] = (cheapest_range.get(best.name, (load, load))[0], load)
    return cheapest_range
