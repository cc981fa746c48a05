"""What a result costs: price book, cost per result, hardware one owns."""

from __future__ import annotations

from accelsim.economics.offer import PRICE_KINDS, Offer, PriceKind, Quote, price_kind
from accelsim.economics.ownership import amortised_usd_per_hour, electricity_usd_per_hour
from accelsim.economics.price import PriceBook
from accelsim.economics.result import (
    CostReport,
    cost_report,
    electricity_usd,
    usd_per_1000_inferences,
    usd_per_epoch,
    usd_per_million_tokens,
    usd_per_training_run,
)

__all__ = [
    "PRICE_KINDS",
    "CostReport",
    "Offer",
    "PriceBook",
    "PriceKind",
    "Quote",
    "amortised_usd_per_hour",
    "cost_report",
    "electricity_usd",
    "electricity_usd_per_hour",
    "price_kind",
    "usd_per_1000_inferences",
    "usd_per_epoch",
    "usd_per_million_tokens",
    "usd_per_training_run",
]
