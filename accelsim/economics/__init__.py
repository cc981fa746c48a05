"""What a result costs: price book, cost per result, electricity of hardware one owns."""

from __future__ import annotations

from accelsim.economics.offer import PRICE_KINDS, Offer, PriceKind, Quote, price_kind
from accelsim.economics.price import PriceBook
from accelsim.economics.result import (
    electricity_usd_per_hour,
    usd_per_1000_inferences,
    usd_per_epoch,
    usd_per_million_tokens,
)

__all__ = [
    "PRICE_KINDS",
    "Offer",
    "PriceBook",
    "PriceKind",
    "Quote",
    "electricity_usd_per_hour",
    "price_kind",
    "usd_per_1000_inferences",
    "usd_per_epoch",
    "usd_per_million_tokens",
]
