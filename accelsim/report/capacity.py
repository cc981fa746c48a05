"""A capacity plan as tables for a terminal, and as a page: the fleet that it recommends, why, what
certainty costs beside the line of the budget, a row for each device, what would change the
decision, and where the load goes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import HOURS_PER_MONTH, JOULES_PER_KWH
from accelsim.plain import Document, Rows, Values
from accelsim.quantity import say
from accelsim.report.calculator import calculator_section
from accelsim.report.listing import Listing, notes
from accelsim.report.offers import quote_of
from accelsim.report.page import Page, Section, figure, limit_line, points
from accelsim.report.parts import COLOURS, mapping_section, provenance_sections, rows_section
from accelsim.report.result_page import known_devices

if TYPE_CHECKING:
    from accelsim.capacity.answer import CapacityPlan

_FLEETS = (
    "~fleet | >devices=device_count | >inst.=instance_count | >USD/month=cost_usd_per_month | "
    ">energy/month=energy_kwh | >CO2e/month=carbon_kgco2e_per_month"
)
_ROWS = (
    "device | ~status | >devices=device_count | >inst.=instance_count | "
    ">USD/month=cost_usd_per_month | >within 5 %=near_best_probability | "
    ">energy/month=energy_kwh | >CO2e/month=carbon_kgco2e_per_month"
)
_WAYS = (
    "way | ~of? | >USD/month=usd_per_month? | >USD/M tokens out=usd_per_million_tokens? | "
    "as of=as_of? | ~why not=reason?"
)
_CERTAIN = f"certainty=probability:fraction | {_FLEETS}"
#: Figures of a fleet on a page.
_FIGURES = (
    ">devices=device_count | >instances=instance_count | >USD a month=cost_usd_per_month | "
    ">energy a month=energy_j_per_month | >CO2e a month=carbon_kgco2e_per_month"
)
#: Parameter that is changed -> what it is, and how its value is shown.
_CHANGES = {"load_ratio": "load", "price_ratio": "price"}
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


def capacity_view(result: CapacityPlan) -> RenderableType:
    """The recommended fleet and its runner-ups, why, what certainty costs, and what would change
    the decision.

    Args:
        result: The plan.
    """
    document = result.figures()
    tables = (
        Listing.of(_FLEETS, _fleets(_fleets_of(document))),
        Listing.of(_CERTAIN, _fleets(document["certainty"])),
        Listing.of(_ROWS, _fleets(document["candidates"])),
        Listing.of(_WAYS, document["ways"]),
        Listing.of("if | becomes | ~then", [_change(row) for row in result.sensitivity]),
    )
    shortened = (textwrap.shorten(text, 160, placeholder=" ...") for text in result.warnings)
    return Group(
        Text(document["reason"]),
        *(view for table in tables if table.rows for view in ("", table)),
        *notes(shortened),
    )


def _fleets_of(document: Values) -> list[Values]:
    """The recommended fleet of a plan and its alternatives; none where there is none."""
    best = document["recommended"]
    return [] if best is None else [best, *document["alternatives"]]


def _fleet_text(offers: Rows, form: str = "{count} x {device} at {offer}") -> str:
    """Instances of a fleet.

    Args:
        offers: Of each offer.
        form: What is said of one.
    """
    return " + ".join(say(form, offer) for offer in offers) or "no fleet"


def _fleets(rows: Rows) -> list[Document]:
    """Fleets with their offers in words and their energy in kWh."""
    fleets = []
    for row in rows:
        energy_j = row.get("energy_j_per_month")
        energy_kwh = None if energy_j is None else energy_j / JOULES_PER_KWH
        text = _fleet_text(row.get("offers", ()))
        fleets.append({**row, "energy_kwh": energy_kwh, "fleet": text})
    return fleets


def _change(row: Values) -> Document:
    then = _fleet_text(row["offers"]) if row["changes_decision"] else "the same device"
    return {
        "if": _CHANGES[row["parameter"]],
        "becomes": say("x {value:decimal}", row),
        "then": f"{then}{say('[, {cost_usd_per_month}]', row)}",
    }


def fleet_rows(result: CapacityPlan) -> list[Document]:
    """A row per offer of the recommended fleet and of the alternatives.

    Args:
        result: The plan.
    """
    return [
        {"rank": rank, **offer, "fleet_usd_per_month": fleet["cost_usd_per_month"]}
        for rank, fleet in enumerate(_fleets_of(result.figures()), 1)
        for offer in fleet["offers"]
    ]


def capacity_page(document: Values, command: str) -> Page:
    """The report of a capacity plan.

    Args:
        document: The plan as plain values.
        command: Command that makes the page again.
    """
    fleets = _fleets_of(document)
    conflicts = [{"constraint": text} for text in document["conflicts"]]
    sections = [
        *((_fleets_section(fleets), _break_even(document, fleets)) if fleets else ()),
        _certainty(document) if document["certainty"] else None,
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
    flat = dict(row)
    offers = flat.pop("offers", None)
    return flat if offers is None else {"fleet": _fleet_text(offers, _NAMES), **flat}


def _fleets_section(fleets: Rows) -> Section:
    rows = [
        {**_flat(fleet), "offered": tuple(offer["offer"] for offer in fleet["offers"])}
        for fleet in fleets
    ]
    columns = f"fleet | offers=offered | {_FIGURES} | >slower by at most=headroom_fraction"
    text = "The first is recommended; the others are the best without the devices before them."
    return Section.of("fleets", "Fleets", columns, rows, text)


def _certainty(document: Values) -> Section:
    """What certainty about the model costs, from the median on, beside the budget."""
    median = {"probability": 0.5, **document["recommended"]}
    rows = [
        {**_flat(row), "sure_percent": 100 * row["probability"]}
        for row in (median, *document["certainty"])
        if row["offers"]
    ]
    marker = {"size": 12, "color": [COLOURS[1], *[COLOURS[0]] * (len(rows) - 1)]}
    axes = ("cost_usd_per_month", "sure_percent")
    traces = [points("fleets", rows, *axes, "markers+lines", marker=marker)]
    budget = (document["inputs"].get("constraints") or {}).get("budget_usd_per_month")
    if budget is not None:
        ends = [min(row["sure_percent"] for row in rows), 100]
        traces.append(limit_line("budget", [budget] * 2, ends))
    picture = figure(traces, "USD a month", "certainty about the model, %")
    columns = f"certainty=probability:fraction | fleet | {_FIGURES}"
    text = "Half of the certainty is the median of the model's error, which is recommended for."
    return Section.of("certainty", "What certainty costs", columns, rows, text, picture)


def _break_even(document: Values, fleets: Rows) -> Section | None:
    """Cost of other loads on each fleet of one offer."""
    services = document["inputs"].get("services") or []
    load_per_s = services[0].get("requests_per_s") if len(services) == 1 else None
    offers = [fleet["offers"][0] for fleet in fleets if len(fleet["offers"]) == 1]
    if not load_per_s or not offers:
        return None
    options = [_load_option(offer, load_per_s) for offer in offers]
    text = "An instance carries its share of the load; fleets of several offers are left out."
    return calculator_section(options, float(load_per_s), "requests", text)


def _load_option(offer: Values, load_per_s: float) -> LoadOption:
    """An instance with its share of the load.

    Estimate: the instances of a fleet share its load and its cost evenly.
    """
    hourly_usd = offer["cost_usd_per_month"] / offer["count"] / HOURS_PER_MONTH
    name = f"{offer['device']}, {offer['offer']}"
    return LoadOption(name, load_per_s / offer["count"], hourly_usd)


def _growth(costs_usd: Sequence[float | None]) -> Section:
    months = range(1, len(costs_usd) + 1)
    rows = [
        {"month": str(month), "cost_usd": cost}
        for month, cost in zip(months, costs_usd, strict=True)
    ]
    bars = {"type": "bar", "x": list(months), "y": list(costs_usd)}
    picture = figure([bars], "month", "USD")
    return Section.of("growth", "Cost by month", "month | >USD=cost_usd", rows, "", picture)


def _sources(fleets: Rows, document: Values) -> list[Section]:
    offers = [offer for fleet in fleets for offer in fleet["offers"]]
    answers: list[Document] = []
    for offer in offers:
        quote = quote_of(offer["offer"])
        hourly_usd = None if quote is None else quote.offer.usd_per_hour(quote.kind)
        answer = {"device": offer["device"], "offer": offer["offer"], "usd_per_hour": hourly_usd}
        answers.append(answer)
    devices = known_devices([offer["device"] for offer in offers])
    about = {"provenance": document.get("provenance"), "device": "plan"}
    return provenance_sections([*answers, about], devices)
