"""Spare instances: as many as are asked for, and as keep enough of the others up."""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.economics.instances import cheapest_cover

#: Most instances beside those needed that failures may ask for.
_MOST_SPARES = 200


def spared_cover(
    places: Sequence[int],
    usd: Sequence[float],
    replicas: int,
    redundancy: int,
    stays: tuple[float, float],
) -> tuple[int, ...] | None:
    """The cheapest instances, as many spare ones among them as are asked for, and as keep enough
    of them up for the share of the time that requests are to be served.

    Args:
        places: Replicas that each kind holds.
        usd: Price of one of each.
        replicas: Replicas needed.
        redundancy: Spare instances asked for.
        stays: Share of the time that an instance is up, and that enough are.
    """
    up, share = stays
    for spare in range(redundancy, redundancy + _MOST_SPARES):
        counts = cheapest_cover(places, usd, replicas, spare)
        if counts is None or up_probability(sum(counts), spare, up) >= share:
            return counts
    return None


def up_probability(instances: int, spare: int, up_fraction: float) -> float:
    """Share of the time that no more instances than the spare ones are down.

    Args:
        instances: Instances, each down by itself.
        spare: How many may be.
        up_fraction: Share of the time that one is up.
    """
    if up_fraction >= 1:
        return 1.0
    from scipy.special import bdtr

    return float(bdtr(min(spare, instances), instances, 1 - up_fraction))
