"""A capacity plan as tables for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accelsim.plain import Document
from accelsim.report.listing import Listing
from accelsim.report.quantity import UNKNOWN, amount, percent

if TYPE_CHECKING:
    from accelsim.capacity.answer import CapacityPlan, FleetAnswer


def capacity_view(result: CapacityPlan) -> RenderableType:
    """The recommended fleet and its runner-ups, why, and what would change the decision.

    Args:
        result: The plan.
    """
    parts: list[RenderableType] = [Text(result.figures()["reason"])]
    fleets = [] if result.recommended is None else [result.recommended, *result.alternatives]
    if fleets:
        titles = "~fleet | >USD/month | >energy/month | >CO2e/month | >limits hold | >headroom"
        parts.append(Padding(Listing.of(titles, [_cells(fleet) for fleet in fleets]), (1, 0, 0, 0)))
    if result.sensitivity:
        rows = [_change(row) for row in result.sensitivity]
        listing = Listing.of("if | becomes | ~then", rows)
        parts.append(Padding(listing, (1, 0, 0, 0)))
    shown = [textwrap.shorten(warning, 160, placeholder=" ...") for warning in result.warnings]
    return Group(*parts, *(Text(line, style="dim") for line in shown))


def _cells(fleet: FleetAnswer) -> tuple[str, ...]:
    carbon, energy = fleet.carbon_kgco2e_per_month, fleet.energy_j_per_month
    deadlines = fleet.deadline_probability
    return (
        _words([offer.to_dict() for offer in fleet.offers]),
        f"{fleet.cost_usd_per_month:,.2f}",
        UNKNOWN if energy is None else f"{energy / 3.6e6:,.0f} kWh",
        UNKNOWN if carbon is None else amount(carbon * 1e3, "g"),
        percent(min(fleet.slo_probability, 1.0 if deadlines is None else deadlines)),
        percent(fleet.headroom_fraction),
    )


def _words(offers: list[Document]) -> str:
    words = [f"{offer['count']} x {offer['device']} at {offer['offer']}" for offer in offers]
    return " + ".join(words) or "no fleet"


def _change(row: Any) -> tuple[str, str, str]:
    names = {"load_ratio": "load", "probability": "limits hold", "price_ratio": "price"}
    names |= {"efficiency_ratio": "speed", "model_error_ratio": "model error"}
    value = row["value"]
    shown = percent(value) if row["parameter"] == "probability" else f"x {value:.2f}"
    then = _words(row["offers"]) if row["changes_decision"] else "the same device"
    cost = row["cost_usd_per_month"]
    return names[row["parameter"]], shown, then if cost is None else f"{then}, {cost:,.0f} USD"


def fleet_rows(result: CapacityPlan) -> list[Document]:
    """A row per offer of the recommended fleet and of the alternatives.

    Args:
        result: The plan.
    """
    fleets = [] if result.recommended is None else [result.recommended, *result.alternatives]
    return [
        {"rank": rank, **offer.to_dict(), "slo_probability": fleet.slo_probability}
        for rank, fleet in enumerate(fleets, 1)
        for offer in fleet.offers
    ]
