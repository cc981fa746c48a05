"""The cheapest offer of a provider and board beside the cheapest of SkyPilot's catalogue.

    python benchmarks/skypilot_prices.py TABLE

TABLE is a folder or table of https://github.com/skypilot-org/skypilot-catalog, or a feed whose
sources name it. A dearer price that is newer than the catalogue's is what the provider asks today,
and is counted apart.
"""

from __future__ import annotations

import sys

from accelsim.economics.eligible import rule_of
from accelsim.economics.feeds.sources import import_offers
from accelsim.economics.price import PriceBook

#: Offers of all classes, as the catalogue has marketplaces, too.
_ANY = rule_of("any", None)
#: Prices this near are one.
NEAR = 1.001


def main(table: str) -> None:
    """Print a line for each provider and board where the catalogue is cheaper, and the counts."""
    book, least = PriceBook.load(), {}
    for offer in import_offers(table).offers:
        price = offer.on_demand_usd_per_hour
        if "skypilot" in offer.source and offer.device and offer.device_count and price:
            key = offer.provider, offer.device
            each = price / offer.device_count, offer.as_of
            least[key] = min(least.get(key, each), each)
    counts = dict.fromkeys(("not dearer", "newer and dearer", "dearer", "not chosen"), 0)
    for (provider, device), (price, as_of) in sorted(least.items()):
        offers = [
            offer
            for offer in book.eligible(device, provider=provider, rule=_ANY).offers
            if offer.provider == provider and offer.device_count
        ]
        prices = ((o.on_demand_usd_per_hour / o.device_count, o.as_of) for o in offers)
        mine = min(prices, default=None)
        kind = "not chosen"
        if mine is not None:
            is_newer = mine[1] > as_of and mine[0] > NEAR * price
            kind = "newer and dearer" if is_newer else "dearer"
            kind = "not dearer" if mine[0] <= NEAR * price else kind
        counts[kind] += 1
        if kind != "not dearer":
            print(f"{provider} {device}: {kind}; {price:.3g} of {as_of}, here {mine}")
    print(f"{len(least)} providers and boards: {counts}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        print("nothing is compared: name SkyPilot's table")
