"""The page of a break-even: what each option costs over the demands it carries, where the lines
cross, and what a load costs on each, with sliders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.report.calculator import LoadOption, calculator_section
from accelsim.report.page import Cell, DataTable, Page, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, provenance_sections
from accelsim.report.quantity import decimal, number, usd
from accelsim.report.result_page import known_devices

_MONTHS = 12
#: Lines are drawn from the least crossing over this to the last times it.
_AROUND = 30.0
_VOLUMES = 61

Row = Mapping[str, Any]


def breakeven_page(rows: Sequence[Row], command: str) -> Page:
    """The report of a break-even.

    Args:
        rows: A row per option, as the command's JSON has them.
        command: Command that makes the page again.
    """
    first = rows[0]
    reference = {
        "option": first["reference"],
        "nre_usd": 0.0,
        "usd_per_demand": first["reference_usd_per_demand"],
        "rate_per_s": first["reference_rate_per_s"],
        "demand_per_s": first["demand_per_s"],
        "life_years": first["life_years"],
    }
    text = (
        f"A demand is {number(first['demand_per_s'])} inferences per second over "
        f"{first['life_years']:g} years; hardware and electricity are bought in proportion."
    )
    options = [_load_option(one) for one in (reference, *rows)]
    sections = [
        _lines(reference, rows, text),
        calculator_section(
            options,
            float(first["demand_per_s"]),
            "inferences",
            "Whole devices bought with their electricity over the same life; development by month.",
            name="cost",
        ),
        *provenance_sections([], known_devices([str(one["option"]) for one in (reference, *rows)])),
    ]
    decision = tuple(_words(row) for row in rows)
    title = f"{', '.join(str(row['option']) for row in rows)} against {first['reference']}"
    return Page(f"Break-even of {title}", decision, tuple(sections), command)


def _words(row: Row) -> str:
    if row["volume"] is None:
        return f"{row['option']} is never cheaper than {row['reference']}: {row['reason']}."
    if row["volume"] == 0:
        return f"{row['option']} is cheaper than {row['reference']} from the first demand on."
    return (
        f"{row['option']} is cheaper than {row['reference']} from {decimal(row['volume'])} demands "
        f"on ({decimal(row['units'])} units), development of {usd(row['nre_usd'])} included."
    )


def _load_option(one: Row) -> LoadOption:
    """Price of an hour of one unit, and development by month of its life."""
    hours = one["life_years"] * HOURS_PER_YEAR
    hourly = one["usd_per_demand"] * one["rate_per_s"] / one["demand_per_s"] / hours
    monthly = one["nre_usd"] / (one["life_years"] * _MONTHS)
    return LoadOption(str(one["option"]), one["rate_per_s"], hourly, monthly)


def _lines(reference: Row, rows: Sequence[Row], text: str) -> Section:
    """Cost over demands of every option, and the crossings with the reference's."""
    crossings = [row["volume"] for row in rows if row["volume"]] or [1.0]
    volumes = np.geomspace(min(crossings) / _AROUND, max(crossings) * _AROUND, _VOLUMES)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": label(str(one["option"])),
            "x": volumes.tolist(),
            "y": (one["nre_usd"] + volumes * one["usd_per_demand"]).tolist(),
            "line": {"color": COLOURS[place % len(COLOURS)]},
        }
        for place, one in enumerate((reference, *rows))
    ]
    met = [row for row in rows if row["volume"]]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "break-even",
            "x": [row["volume"] for row in met],
            "y": [row["volume"] * row["reference_usd_per_demand"] for row in met],
            "text": [label(str(row["option"])) for row in met],
            "marker": {"symbol": "diamond", "size": 12, "color": COLOURS[5]},
        }
    )
    drawn = figure(traces, xaxis=axis("demands", type="log"), yaxis=axis("USD", type="log"))
    titles = ("option", ">development", ">per demand", ">from demands", ">from units")
    cells: list[tuple[str | Cell, ...]] = [
        (
            str(one["option"]),
            cell(one["nre_usd"], usd),
            cell(one["usd_per_demand"], usd),
            *_from(one),
        )
        for one in (reference, *rows)
    ]
    return Section("break-even", "Cost over demands", DataTable(titles, cells), text, drawn)


def _from(one: Row) -> tuple[str | Cell, str | Cell]:
    """Where an option starts to be cheaper; the reference has no such place."""
    if "reference" not in one:
        return "", ""
    if one["volume"] is None:
        return "never", "never"
    return cell(one["volume"], decimal), cell(one["units"], decimal)
