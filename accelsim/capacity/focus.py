"""A plan's costs as rows of FOCUS 1.2, the FinOps Open Cost and Usage Specification, which tools of
cloud bills read (focus.finops.org/focus-specification/v1-2).

All columns that are mandatory there, and those that a plan knows. The costs are forecasts: there is
no invoice, and billed, effective, contracted and list cost are one figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

from accelsim.capacity.answer import FleetAnswer
from accelsim.plain import Document, Values

_CATEGORIES: Final = {"spot": "Dynamic", "committed": "Committed"}
_COSTS: Final = ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost")
_PRICES: Final = ("ListUnitPrice", "ContractedUnitPrice")


def focus_rows(fleet: FleetAnswer, account: str, today: date) -> list[Document]:
    """A mean month of a fleet, a row for each service or job on each of its offers.

    Args:
        fleet: The fleet.
        account: What is billed: the scenario's name.
        today: The calendar month after this day is the period.

    Returns:
        Rows by FOCUS column; None for a column without a value.
    """
    start = _next_month(today)
    period = [f"{day.isoformat()}T00:00:00Z" for day in (start, _next_month(start))]
    about: Document = {
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingCurrency": "USD",
        **dict(zip(("BillingPeriodStart", "BillingPeriodEnd"), period, strict=True)),
        **dict(zip(("ChargePeriodStart", "ChargePeriodEnd"), period, strict=True)),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeFrequency": "Usage-Based",
        "ServiceCategory": "Compute",
        "ServiceName": "Instances",
        "PricingUnit": "Hours",
    }
    return [about | charge for row in fleet.placement for charge in _charges(row)]


def _charges(row: Values) -> Iterator[Document]:
    """Charges of a service or job; its cost is divided as the prices of its offers are."""
    name = row.get("service") or row["job"]
    prices = [offer["count"] * offer["usd_per_hour"] for offer in row["offers"]]
    for offer, price in zip(row["offers"], prices, strict=True):
        cost = row["cost_usd_per_month"] * price / sum(prices)
        instance_id, _, kind = str(offer["offer"]).partition(":")
        provider, region, _ = instance_id.split("/", 2)
        tags = {"name": name, "model": row["model"], "device": offer["device"]}
        yield {
            **dict.fromkeys(_COSTS, cost),
            **dict.fromkeys(_PRICES, offer["usd_per_hour"]),
            **dict.fromkeys(("ProviderName", "PublisherName", "InvoiceIssuerName"), provider),
            "PricingQuantity": cost / offer["usd_per_hour"],
            "PricingCategory": _CATEGORIES.get(kind.partition("_")[0], "Standard"),
            "ChargeDescription": f"Forecast of a mean month: {offer['count']} x "
            f"{offer['instance']} for {name}",
            "RegionId": region,
            "SkuId": offer["instance"],
            "Tags": json.dumps(tags),
        }


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)
