"""Cost of a load on an option: a device that is rented by the hour, or bought: its price over its
life and its electricity by the hour.

Cost of a load is whole devices times the hourly price (see `capacity.breakeven` for the lines that
cross); ``page.js`` of `accelsim.report` has the same formulas for its sliders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsim.economics.result import HOURS_PER_MONTH, SECONDS_PER_MONTH
from accelsim.frozen import frozen


@frozen
class LoadOption:
    """A way to carry a load.

    Attributes:
        name: Device or replica, with how it is paid.
        rate_per_s: Results per second of one, > 0.
        usd_per_hour: Price of one for an hour.
        fixed_usd_per_month: Paid whatever the load: development over its life.
        devices: Devices of one.
    """

    name: str
    rate_per_s: float
    usd_per_hour: float
    fixed_usd_per_month: float = 0.0
    devices: int = 1


@frozen
class LoadCost:
    """What an option takes for a load.

    Attributes:
        unit_count: Devices.
        usd_per_month: Cost of a mean month.
        usd_per_1000: Cost of 1,000 results at that load.
        headroom_fraction: Load they could carry beyond it, within the utilisation.
    """

    unit_count: int
    usd_per_month: float
    usd_per_1000: float
    headroom_fraction: float


def load_cost(option: LoadOption, load_per_s: float, utilisation_fraction: float) -> LoadCost:
    """Whole devices that carry a load, and their cost.

    Estimate: a device serves at most the share `utilisation_fraction` of its rate.

    Args:
        option: The way to carry it.
        load_per_s: Results per second, > 0.
        utilisation_fraction: Share of a device's rate that is used at most, in (0, 1].
    """
    capacity_per_s = option.rate_per_s * utilisation_fraction
    count = max(1, math.ceil(load_per_s / capacity_per_s - 1e-9))
    monthly = option.fixed_usd_per_month + count * option.usd_per_hour * HOURS_PER_MONTH
    return LoadCost(
        count * option.devices,
        monthly,
        1e3 * monthly / (load_per_s * SECONDS_PER_MONTH),
        count * capacity_per_s / load_per_s - 1,
    )


def cheapest_range(
    options: Sequence[LoadOption], loads_per_s: Sequence[float], utilisation_fraction: float
) -> dict[str, tuple[float, float]]:
    """First and last load at which an option is the cheapest, by its name; of equals the first.

    Args:
        options: Ways to carry the loads.
        loads_per_s: Loads, ascending.
        utilisation_fraction: As in `load_cost`.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for load in loads_per_s:
        costs = [load_cost(option, load, utilisation_fraction).usd_per_month for option in options]
        name = options[costs.index(min(costs))].name
        ranges[name] = (ranges.get(name, (load, load))[0], load)
    return ranges
