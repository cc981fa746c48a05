"""The page of a capacity plan: the fleet it recommends and why, what certainty costs beside the
line of the budget, a row for each device, what would change the decision, and where the load goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.economics.load_cost import LoadOption
from accelsim.plain import Document, Values
from accelsim.report.calculator import calculator_section
from accelsim.report.capacity import fleet_words, fleets_of
from accelsim.report.offers import quote_of
from accelsim.report.page import Page, Section, figure, limit_line, trace
from accelsim.report.parts import COLOURS, mapping_section, provenance_sections, rows_section
from accelsim.report.result_page import known_devices

_HOURS_PER_MONTH = 730.5
#: What is said of an offer where its price stands beside it.
_NAMES = "{count} x {device}"
#: Rows of a plan that are tables as they are, with their headings.
_PARTS = {
    "candidates": "Every device: its best fleet alone, a bound of its cost, or why it cannot",
    "pareto": "Fleets that no other shown beats in cost, energy and carbon",
    "sensitivity": "What would change the decision",
    "placement": "Where the load goes",
    "ways": "Rent, buy, colocate or call",
    "near_misses": "What limits would have to become",
}


def capacity_page(document: Values, command: str) -> Page:
    """The report of a capacity plan.

    Args:
        document: The plan as plain values.
        command: Command that makes the page again.
    """
    fleets = fleets_of(document)
    conflicts = [{"constraint": text} for text in document["conflicts"]]
    sections = [
        *([_fleets(fleets), *_break_even(document, fleets)] if fleets else []),
        *([_certainty(document)] if document["certainty"] else []),
        *(
            rows_section(name, title, [_flat(row) for row in document[name]])
            for name, title in _PARTS.items()
        ),
        rows_section("conflicts", "Constraints that no fleet keeps together", conflicts),
        _growth(document["cost_by_month"]) if document["cost_by_month"] else None,
        mapping_section("scenario", "The scenario", document["inputs"]),
        *_sources(fleets, document),
    ]
    title = f"Fleet for {document['scenario']}"
    return Page.of(title, (document["reason"],), sections, command, document["warnings"])


def _flat(row: Values) -> Document:
    """A row with its offers in words."""
    named = {"fleet": fleet_words(row["offers"], _NAMES)} if "offers" in row else {}
    return named | {name: value for name, value in row.items() if name != "offers"}


def _fleets(fleets: Sequence[Values]) -> Section:
    rows = [
        {**fleet, "fleet": fleet_words(fleet["offers"], _NAMES)}
        | {"offered": tuple(one["offer"] for one in fleet["offers"])}
        for fleet in fleets
    ]
    columns = (
        "fleet | offers=offered | >devices=device_count | >instances=instance_count | "
        ">USD a month=cost_usd_per_month | >energy a month=energy_j_per_month | "
        ">CO2e a month=carbon_kgco2e_per_month | >slower by at most=headroom_fraction"
    )
    text = "The first is recommended; the others are the best without the devices before them."
    return Section.of("fleets", "Fleets", columns, rows, text)


def _certainty(document: Values) -> Section:
    """What certainty about the model costs, from the median on, beside the budget."""
    best = {"probability": 0.5, **document["recommended"]}
    known = [row for row in (best, *document["certainty"]) if row["offers"]]
    rows = [{**row, "fleet": fleet_words(row["offers"], _NAMES)} for row in known]
    costs = [row["cost_usd_per_month"] for row in rows]
    sure = [100 * row["probability"] for row in rows]
    marker = {"size": 12, "color": [COLOURS[1], *[COLOURS[0]] * (len(rows) - 1)]}
    points = trace("fleets", costs, sure, "markers+lines", marker=marker)
    budget = (document["inputs"].get("constraints") or {}).get("budget_usd_per_month")
    lines = [] if budget is None else [limit_line("budget", [budget] * 2, [min(sure), 100])]
    drawn = figure([points, *lines], "USD a month", "certainty about the model, %")
    columns = (
        "certainty=probability:fraction | fleet | >devices=device_count | "
        ">instances=instance_count | >USD a month=cost_usd_per_month | "
        ">energy a month=energy_j_per_month | >CO2e a month=carbon_kgco2e_per_month"
    )
    text = "Half of the certainty is the median of the model's error, which is recommended for."
    return Section.of("certainty", "What certainty costs", columns, rows, text, drawn)


def _break_even(document: Values, fleets: Sequence[Values]) -> list[Section]:
    """Cost of other loads on each fleet of one offer."""
    services = document["inputs"].get("services") or []
    if len(services) != 1 or not services[0].get("requests_per_s"):
        return []
    load = float(services[0]["requests_per_s"])
    options = []
    for fleet in fleets:
        if len(fleet["offers"]) == 1:
            (one,) = fleet["offers"]
            rate = load / one["count"]
            hourly = one["cost_usd_per_month"] / one["count"] / _HOURS_PER_MONTH
            options.append(LoadOption(f"{one['device']}, {one['offer']}", rate, hourly))
    if not options:
        return []
    text = "An instance carries its share of the load; fleets of several offers are left out."
    return [calculator_section(options, load, "requests", text)]


def _growth(costs: Sequence[float | None]) -> Section:
    rows = [{"month": str(month), "cost_usd": cost} for month, cost in enumerate(costs, 1)]
    line = {"type": "bar", "x": list(range(1, len(costs) + 1)), "y": list(costs)}
    drawn = figure([line], "month", "USD")
    return Section.of("growth", "Cost by month", "month | >USD=cost_usd", rows, "", drawn)


def _sources(fleets: Sequence[Values], document: Values) -> list[Section]:
    offers = [one for fleet in fleets for one in fleet["offers"]]
    answers = [
        {"device": offer["device"], "offer": offer["offer"], "usd_per_hour": _hourly(offer)}
        for offer in offers
    ]
    about = {"provenance": document.get("provenance"), "device": "plan"}
    return provenance_sections(
        [*answers, about], known_devices([offer["device"] for offer in offers])
    )


def _hourly(one: Values) -> float | None:
    """Price of an instance for an hour."""
    quote = quote_of(one["offer"])
    if quote is None:
        return None
    hourly: float | None = quote.offer.usd_per_hour(quote.kind)
    return hourly
