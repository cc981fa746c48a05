"""Whole instances: the cheapest that hold replicas in one region of one provider.

Clouds rent instances, not devices, and the replicas of a service stay together. The instances are
found by dynamic programming over replicas; far beyond the largest instance, the one with the least
price of a place repeats (Gilmore & Gomory, Operations Research 14(6), 1966, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import mul

from accelsim.economics.carbon import site_kgco2e_per_kwh
from accelsim.economics.device_price import DevicePrice, PriceChoice, device_price, device_quotes
from accelsim.economics.offer import Quote
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import grouped


def cheapest_cover(
    places: Sequence[int], costs: Sequence[float], needed: int, spare: int = 0
) -> tuple[int, ...] | None:
    """Instances of each kind with the least cost that have places enough.

    Args:
        places: Replicas that an instance of each kind holds, >= 0.
        costs: Cost of one, >= 0.
        needed: Places, >= 1.
        spare: Instances that may be missing, whichever they are, without fewer places than needed.

    Returns:
        A count for each kind; None where no kind holds a replica.
    """
    covers = [
        _cover(places, costs, largest, needed + spare * largest)
        for largest in sorted(set(places) - {0})
    ]
    return min(covers, key=lambda counts: sum(map(mul, counts, costs)), default=None)


def _cover(
    places: Sequence[int], costs: Sequence[float], largest: int, needed: int
) -> tuple[int, ...]:
    """The cheapest instances of at most `largest` places each with at least so many in all:
    a knapsack function (Gilmore & Gomory, Operations Research 14(6), 1966).
    """
    kinds = [kind for kind, place_count in enumerate(places) if 0 < place_count <= largest]
    cheapest = min(kinds, key=lambda kind: (costs[kind] / places[kind], -places[kind]))
    counts, most = [0] * len(places), largest**2 + largest
    if needed > most:  # fewer of the others than places of the best: more could be exchanged for it
        counts[cheapest] = (needed - most) // places[cheapest]
        needed -= counts[cheapest] * places[cheapest]
    least_costs, last_kinds = [0.0], [0]
    for place_count in range(1, needed + 1):
        sums = [costs[kind] + least_costs[max(place_count - places[kind], 0)] for kind in kinds]
        least_costs.append(min(sums))
        last_kinds.append(kinds[sums.index(least_costs[-1])])
    while needed > 0:
        counts[last_kinds[needed]] += 1
        needed -= places[last_kinds[needed]]
    return tuple(counts)


def fleet_price(
    device: DeviceProfile, choice: PriceChoice | None, replicas: int, ranks: int
) -> DevicePrice:
    """Price of each device of a service whose whole instances are paid; that of `device_price`
    where the device is no whole part of an instance, or none holds a replica.

    Args:
        device: Profile.
        choice: Which price; the cheapest on-demand offers where None.
        replicas: Replicas of the service.
        ranks: Devices of a replica.

    Raises:
        InputError: See `device_price`.
    """
    alone = device_price(device, choice)
    sites = grouped(
        device_quotes(device, choice), lambda quote: (quote.offer.provider, quote.offer.region)
    )
    fleets = [_cheapest_at(quotes, replicas, ranks) for quotes in sites.values()]
    fleet = min(filter(None, fleets), key=_usd_per_hour, default=None)
    if fleet is None:
        return alone
    devices, offer = replicas * ranks, fleet[0][0].offer
    return replace(
        alone,
        usd_per_hour=_usd_per_hour(fleet) / devices,
        offer=" + ".join(quote.quote_id for quote, _ in fleet),
        as_of=min(quote.offer.dated(quote.kind) for quote, _ in fleet),
        devices_per_instance=devices / math.fsum(count for _, count in fleet),
        kgco2e_per_kwh=site_kgco2e_per_kwh(offer.provider, offer.region),
    )


def _cheapest_at(quotes: Sequence[Quote], replicas: int, ranks: int) -> list[tuple[Quote, int]]:
    """The cheapest instances of one site that hold the replicas, each with its count; empty where
    none holds one.
    """
    places = [int((quote.offer.device_count or 0.0) // ranks) for quote in quotes]
    costs = [quote.instance_usd_per_hour for quote in quotes]
    counts = cheapest_cover(places, costs, replicas) or ()
    return [pair for pair in zip(quotes, counts, strict=False) if pair[1]]


def _usd_per_hour(fleet: Sequence[tuple[Quote, int]]) -> float:
    return sum(count * quote.instance_usd_per_hour for quote, count in fleet)
