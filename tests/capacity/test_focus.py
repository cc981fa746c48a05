"""Costs of a plan as FOCUS rows: its columns, and that they sum to the plan's."""

from __future__ import annotations

import json
from datetime import date

import pytest

from accelsim.capacity.answer import FleetAnswer
from accelsim.capacity.focus import focus_rows

#: Columns that FOCUS 1.2 wants in all data (rules "-M" of its requirements model 1.2).
MANDATORY = {
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
}
#: The other columns of FOCUS 1.2 that are written.
FURTHER = {"ChargeFrequency", "ListUnitPrice", "ContractedUnitPrice", "RegionId", "SkuId", "Tags"}


def offer(name, count, price):
    return {
        "offer": name,
        "device": "t4",
        "instance": name.split("/")[2].partition(":")[0],
        "count": count,
        "device_count": 1,
        "usd_per_hour": price,
    }


def fleet():
    rows = (
        {
            "service": "chat",
            "model": "qwen3-8b",
            "cost_usd_per_month": 2922.0,
            "offers": [offer("aws/eu-1/g4dn.xlarge", 3, 1.0), offer("gcp/eu-2/n1:spot", 2, 0.5)],
        },
        {
            "job": "nightly",
            "model": "bert-base",
            "cost_usd_per_month": 10.0,
            "offers": [offer("aws/eu-1/g4dn.xlarge:committed_1y", 1, 0.8)],
        },
    )
    return FleetAnswer((), 6, 2932.0, None, None, 0.0, rows)


def test_rows_have_the_columns_and_sum_to_the_plan():
    rows = focus_rows(fleet(), "ours", date(2026, 11, 28))
    assert [row["PricingCategory"] for row in rows] == ["Standard", "Dynamic", "Committed"]
    for row in rows:
        assert set(row) == MANDATORY | FURTHER
        assert [name for name in sorted(MANDATORY) if row[name] is None] == ["ChargeClass"]
        assert row["PricingQuantity"] * row["ListUnitPrice"] == pytest.approx(row["BilledCost"])
    assert [row["BilledCost"] for row in rows] == pytest.approx([2191.5, 730.5, 10.0])
    assert rows[0]["PricingQuantity"] == pytest.approx(3 * 730.5)
    assert (rows[1]["ProviderName"], rows[1]["RegionId"], rows[1]["SkuId"]) == ("gcp", "eu-2", "n1")
    assert json.loads(rows[2]["Tags"]) == {"name": "nightly", "model": "bert-base", "device": "t4"}


@pytest.mark.parametrize(
    ("today", "start", "end"),
    [("2026-11-28", "2026-12-01", "2027-01-01"), ("2027-01-31", "2027-02-01", "2027-03-01")],
)
def test_the_period_is_the_next_calendar_month(today, start, end):
    first = focus_rows(fleet(), "ours", date.fromisoformat(today))[0]
    for kind in ("Billing", "Charge"):
        assert first[f"{kind}PeriodStart"] == f"{start}T00:00:00Z"
        assert first[f"{kind}PeriodEnd"] == f"{end}T00:00:00Z"
