"""A capacity plan as tables for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accelsim.plain import Document, Values
from accelsim.quantity import say
from accelsim.report.listing import Listing

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
#: Parameter that is changed -> what it is, and how its value is shown.
_CHANGES = {
    "load_ratio": "load | x {value:decimal}",
    "price_ratio": "price | x {value:decimal}",
}
_JOULES_PER_KWH = 3.6e6


def capacity_view(result: CapacityPlan) -> RenderableType:
    """The recommended fleet and its runner-ups, why, what certainty costs, and what would change
    the decision.

    Args:
        result: The plan.
    """
    document = result.figures()
    fleets = [_fleet(fleet) for fleet in fleets_of(document)]
    certain = [
        _fleet(row) if row["offers"] else {**row, "fleet": "no fleet"}
        for row in document["certainty"]
    ]
    rows = [_with_energy(row) for row in document["candidates"]]
    changes = [_change(row) for row in result.sensitivity]
    tables = (
        Listing.of(_FLEETS, fleets),
        Listing.of(_CERTAIN, certain),
        Listing.of(_ROWS, rows),
        Listing.of(_WAYS, document["ways"]),
        Listing.of("if | becomes | ~then", changes),
    )
    shown = [textwrap.shorten(warning, 160, placeholder=" ...") for warning in result.warnings]
    return Group(
        Text(document["reason"]),
        *(Padding(table, (1, 0, 0, 0)) for table in tables if table.rows),
        *(Text(line, style="dim") for line in shown),
    )


def fleets_of(document: Values) -> list[Values]:
    """The recommended fleet of a plan and its alternatives; none where there is none."""
    best = document["recommended"]
    return [] if best is None else [best, *document["alternatives"]]


def fleet_words(offers: Sequence[Values], words: str = "{count} x {device} at {offer}") -> str:
    """Instances of a fleet.

    Args:
        offers: Of each offer.
        words: What is said of one.
    """
    return " + ".join(say(words, offer) for offer in offers) or "no fleet"


def _fleet(fleet: Values) -> Document:
    return {**_with_energy(fleet), "fleet": fleet_words(fleet["offers"])}


def _with_energy(row: Values) -> Document:
    energy = row.get("energy_j_per_month")
    return {**row, "energy_kwh": None if energy is None else energy / _JOULES_PER_KWH}


def _change(row: Values) -> Document:
    name, value = say(_CHANGES[row["parameter"]], row).split(" | ")
    then = fleet_words(row["offers"]) if row["changes_decision"] else "the same device"
    cost = say("[, {cost_usd_per_month}]", row)
    return {"if": name, "becomes": value, "then": f"{then}{cost}"}


def fleet_rows(result: CapacityPlan) -> list[Document]:
    """A row per offer of the recommended fleet and of the alternatives.

    Args:
        result: The plan.
    """
    return [
        {"rank": rank, **offer, "fleet_usd_per_month": fleet["cost_usd_per_month"]}
        for rank, fleet in enumerate(fleets_of(result.figures()), 1)
        for offer in fleet["offers"]
    ]
