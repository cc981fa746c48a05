"""Whole instances: the cheapest that hold replicas in one region of one provider.

Clouds rent instances, not devices, and the replicas of a service stay together. The instances are
found by dynamic programming over replicas; far beyond the largest instance, the one with the least
price of a place repeats (Gilmore & Gomory, Operations Research 14(6), 1966, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from accelsim.economics.carbon import grid_kgco2e_per_kwh, pue_ratio
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
    best: tuple[float, tuple[int, ...]] | None = None
    for largest in sorted(set(places) - {0}):
        kept = [kind for kind, held in enumerate(places) if 0 < held <= largest]
        counts = _cover(
            [places[k] for k in kept], [costs[k] for k in kept], needed + spare * largest
        )
        whole = [0] * len(places)
        for kind, count in zip(kept, counts, strict=True):
            whole[kind] = count
        cost = sum(count * each for count, each in zip(whole, costs, strict=True))
        if best is None or cost < best[0]:
            best = cost, tuple(whole)
    return None if best is None else best[1]


def _cover(places: Sequence[int], costs: Sequence[float], needed: int) -> list[int]:
    """The cheapest instances with at least so many places; all hold one."""
    kinds = range(len(places))
    ratio = min(kinds, key=lambda kind: (costs[kind] / places[kind], -places[kind]))
    counts, most = [0] * len(places), max(places) ** 2 + max(places)
    if needed > most:  # fewer of the others than places of the best: more could be exchanged for it
        counts[ratio] = (needed - most) // places[ratio]
        needed -= counts[ratio] * places[ratio]
    least, taken = [0.0], [0]
    for wanted in range(1, needed + 1):
        sums = [costs[kind] + least[max(wanted - places[kind], 0)] for kind in kinds]
        taken.append(min(kinds, key=sums.__getitem__))
        least.append(sums[taken[-1]])
    while needed > 0:
        counts[taken[needed]] += 1
        needed -= places[taken[needed]]
    return counts


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
    best: tuple[float, list[tuple[Quote, int]]] | None = None
    for quotes in sites.values():
        places = [int((quote.offer.device_count or 0.0) // ranks) for quote in quotes]
        costs = [quote.instance_usd_per_hour for quote in quotes]
        counts = cheapest_cover(places, costs, replicas)
        if counts is None:
            continue
        usd = sum(count * cost for count, cost in zip(counts, costs, strict=True))
        if best is None or usd < best[0]:
            best = usd, [(q, count) for q, count in zip(quotes, counts, strict=True) if count]
    return alone if best is None else _shared(alone, best[0], best[1], replicas * ranks)


def _shared(
    alone: DevicePrice, usd_per_hour: float, taken: Sequence[tuple[Quote, int]], devices: int
) -> DevicePrice:
    """The price of instances as that of each device that is used."""
    first = taken[0][0].offer
    grid = grid_kgco2e_per_kwh(first.provider, first.region)
    carbon = None if grid is None else grid * pue_ratio(first.provider, first.region)
    return replace(
        alone,
        usd_per_hour=usd_per_hour / devices,
        offer=" + ".join(quote.quote_id for quote, _ in taken),
        as_of=min(quote.offer.dated(quote.kind) for quote, _ in taken),
        devices_per_instance=devices / math.fsum(count for _, count in taken),
        kgco2e_per_kwh=carbon,
    )
