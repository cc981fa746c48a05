"""The page of a break-even: what each option costs over the demands it carries, where the lines
cross, and what a load costs on each, with sliders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.plain import Values
from accelsim.quantity import say
from accelsim.report.calculator import calculator_section
from accelsim.report.page import Page, Section, figure, trace
from accelsim.report.parts import COLOURS, provenance_sections
from accelsim.report.result_page import known_devices

_MONTHS = 12
#: Lines are drawn from the least crossing over this to the last times it.
_AROUND = 30.0
_VOLUMES = 61


def breakeven_page(rows: Sequence[Values], command: str) -> Page:
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
    text = say(
        "A demand is {demand_per_s} inferences per second over {life_years:decimal} years; "
        "hardware and electricity are bought in proportion.",
        first,
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
    return Page.of(f"Break-even of {title}", decision, sections, command)


def _words(row: Values) -> str:
    if row["volume"] is None:
        return say("{option} is never cheaper than {reference}: {reason}.", row)
    if row["volume"] == 0:
        return say("{option} is cheaper than {reference} from the first demand on.", row)
    return say(
        "{option} is cheaper than {reference} from {volume:decimal} demands on ({units:decimal} "
        "units), development of {nre_usd} included.",
        row,
    )


def _load_option(one: Values) -> LoadOption:
    """Price of an hour of one unit, and development by month of its life."""
    hours = one["life_years"] * HOURS_PER_YEAR
    hourly = one["usd_per_demand"] * one["rate_per_s"] / one["demand_per_s"] / hours
    monthly = one["nre_usd"] / (one["life_years"] * _MONTHS)
    return LoadOption(str(one["option"]), one["rate_per_s"], hourly, monthly)


def _lines(reference: Values, rows: Sequence[Values], text: str) -> Section:
    """Cost over demands of every option, and the crossings with the reference's."""
    crossings = [row["volume"] for row in rows if row["volume"]] or [1.0]
    volumes = np.geomspace(min(crossings) / _AROUND, max(crossings) * _AROUND, _VOLUMES)
    traces = [
        trace(
            one["option"],
            volumes,
            one["nre_usd"] + volumes * one["usd_per_demand"],
            "lines",
            line={"color": COLOURS[index % len(COLOURS)]},
        )
        for index, one in enumerate((reference, *rows))
    ]
    met = [row for row in rows if row["volume"]]
    traces.append(
        trace(
            "break-even",
            [row["volume"] for row in met],
            [row["volume"] * row["reference_usd_per_demand"] for row in met],
            text=[row["option"] for row in met],
            marker={"symbol": "diamond", "size": 12, "color": COLOURS[5]},
        )
    )
    never = dict.fromkeys(("volume", "units"), "never")
    shown = [
        {"volume": "", "units": "", **one, **(never if one.get("volume", 0) is None else {})}
        for one in (reference, *rows)
    ]
    columns = (
        "option | >development=nre_usd | >per demand=usd_per_demand | >from "
        "demands=volume:decimal | >from units=units:decimal"
    )
    drawn = figure(traces, "demands", "USD", "xy")
    return Section.of("break-even", "Cost over demands", columns, shown, text, drawn)
