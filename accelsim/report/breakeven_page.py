"""The page of a break-even: what each option costs over the demands it carries, where the lines
cross, and what a load costs on each, with sliders.
"""

from __future__ import annotations

import numpy as np

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.plain import Rows, Values
from accelsim.quantity import say
from accelsim.report.calculator import calculator_section
from accelsim.report.page import Page, Section, figure, points, trace
from accelsim.report.parts import COLOURS, provenance_sections
from accelsim.report.result_page import known_devices

_MONTHS = 12
#: Lines are drawn from the least crossing over this to the last times it.
_AROUND = 30.0
_VOLUMES = 61


def breakeven_page(rows: Rows, command: str) -> Page:
    """The report of a break-even.

    Args:
        rows: A row per option, as the command's JSON has them.
        command: Command that makes the page again.
    """
    point = rows[0]
    reference = {
        "option": point["reference"],
        "nre_usd": 0.0,
        "usd_per_demand": point["reference_usd_per_demand"],
        "rate_per_s": point["reference_rate_per_s"],
        "demand_per_s": point["demand_per_s"],
        "life_years": point["life_years"],
    }
    options = (reference, *rows)
    sections = [
        _costs(options, rows),
        calculator_section(
            [_load_option(option) for option in options],
            float(point["demand_per_s"]),
            "inferences",
            "Whole devices bought with their electricity over the same life; development by month.",
            name="cost",
        ),
        *provenance_sections([], known_devices([str(option["option"]) for option in options])),
    ]
    names = ", ".join(str(row["option"]) for row in rows)
    title = f"Break-even of {names} against {point['reference']}"
    return Page.of(title, map(_answer, rows), sections, command)


def _answer(row: Values) -> str:
    if row["volume"] is None:
        return say("{option} is never cheaper than {reference}: {reason}.", row)
    if row["volume"] == 0:
        return say("{option} is cheaper than {reference} from the first demand on.", row)
    return say(
        "{option} is cheaper than {reference} from {volume:decimal} demands on ({units:decimal} "
        "units), development of {nre_usd} included.",
        row,
    )


def _load_option(option: Values) -> LoadOption:
    """Price of an hour of one unit, and development by month of its life.

    Estimate: both are spread evenly over the years of service.
    """
    life_hours = option["life_years"] * HOURS_PER_YEAR
    unit_usd = option["usd_per_demand"] * option["rate_per_s"] / option["demand_per_s"]
    monthly_usd = option["nre_usd"] / (option["life_years"] * _MONTHS)
    name, rate_per_s = str(option["option"]), option["rate_per_s"]
    return LoadOption(name, rate_per_s, unit_usd / life_hours, monthly_usd)


def _costs(options: Rows, rows: Rows) -> Section:
    """Cost over demands of every option, and the crossings with the reference's."""
    crossings = [row for row in rows if row["volume"]]
    at = [row["volume"] for row in crossings] or [1.0]
    volumes = np.geomspace(min(at) / _AROUND, max(at) * _AROUND, _VOLUMES)
    traces = [
        trace(
            option["option"],
            volumes,
            option["nre_usd"] + volumes * option["usd_per_demand"],
            "lines",
            line={"color": COLOURS[index % len(COLOURS)]},
        )
        for index, option in enumerate(options)
    ]
    traces.append(
        points(
            "break-even",
            [
                {**row, "cost_usd": row["volume"] * row["reference_usd_per_demand"]}
                for row in crossings
            ],
            "volume",
            "cost_usd",
            text="{option}",
            marker={"symbol": "diamond", "size": 12, "color": COLOURS[5]},
        )
    )
    blank, never = (dict.fromkeys(("volume", "units"), text) for text in ("", "never"))
    shown = [
        {**blank, **option, **(never if option.get("volume", 0) is None else {})}
        for option in options
    ]
    columns = (
        "option | >development=nre_usd | >per demand=usd_per_demand | >from "
        "demands=volume:decimal | >from units=units:decimal"
    )
    text = say(
        "A demand is {demand_per_s} inferences per second over {life_years:decimal} years; "
        "hardware and electricity are bought in proportion.",
        options[0],
    )
    picture = figure(traces, "demands", "USD", "xy")
    return Section.of("break-even", "Cost over demands", columns, shown, text, picture)
