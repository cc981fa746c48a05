"""Owned hardware: what it costs over its life, and when renting is cheaper.

Capital less what it is sold for, electricity by load with the site's overhead (cooling included, as
PUE counts it), space by power, and people: the parts of Barroso et al., The Datacenter as a
Computer, 3rd edition, 2018, chapter 6. Nothing is discounted.
"""

from __future__ import annotations

import math
from dataclasses import asdict

from accelsim.economics.result import HOURS_PER_YEAR, electricity_usd_per_hour, require
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen

_MONTHS_PER_YEAR = 12


@frozen(kw_only=True)
class OwnershipCost:
    """What owned hardware costs over its life, USD.

    Attributes:
        depreciation_usd: Price less what it is sold for at the end.
        electricity_usd: Of hardware and site.
        space_usd: Rent of the room, by power.
        staff_usd: People.
        used_hours: Hours it works.
    """

    depreciation_usd: float
    electricity_usd: float
    space_usd: float
    staff_usd: float
    used_hours: float

    @property
    def total_usd(self) -> float:
        """Sum of the parts.

        Parts of Barroso et al., The Datacenter as a Computer, 3rd edition, 2018, chapter 6.
        """
        return self.depreciation_usd + self.electricity_usd + self.space_usd + self.staff_usd

    @property
    def usd_per_used_hour(self) -> float | None:
        """Cost of an hour of work; None where it never works."""
        return self.total_usd / self.used_hours if self.used_hours else None


@frozen(kw_only=True)
class OwnedHardware:
    """Hardware one buys, and where it stands.

    Attributes:
        price_usd: Paid at the start, network and installation included.
        life_years: Years of service, > 0.
        busy_power_w: Power at work.
        idle_power_w: Power at rest.
        electricity_usd_per_kwh: Energy price.
        pue_ratio: Power usage effectiveness of the site, >= 1; cooling is in it.
        residual_fraction: Of the price, what it is sold for at the end, in [0, 1].
        space_usd_per_kw_month: Rent of the room by kW of busy power.
        staff_usd_per_year: People.

    Raises:
        InvalidValueError: If a figure is outside its range.
    """

    price_usd: float
    life_years: float
    busy_power_w: float
    idle_power_w: float = 0.0
    electricity_usd_per_kwh: float
    pue_ratio: float = 1.0
    residual_fraction: float = 0.0
    space_usd_per_kw_month: float = 0.0
    staff_usd_per_year: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            most = 1 if name == "residual_fraction" else math.inf
            if not (0 <= value <= most and math.isfinite(value)):
                raise InvalidValueError(name, value, f"a finite number from 0 to {most:g}")
        if not self.life_years:
            raise InvalidValueError("life_years", self.life_years, "more than 0")
        if self.idle_power_w > self.busy_power_w:
            allowed = f"at most busy_power_w, {self.busy_power_w:g}"
            raise InvalidValueError("idle_power_w", self.idle_power_w, allowed)

    def cost(self, used_fraction: float) -> OwnershipCost:
        """Cost over its life.

        Parts of Barroso et al., The Datacenter as a Computer, 3rd edition, 2018, chapter 6;
        estimate: power is a line between idle and busy.

        Args:
            used_fraction: Share of the time it works, in [0, 1].

        Raises:
            InvalidValueError: If the share is outside its range.
        """
        if not 0 <= used_fraction <= 1:
            raise InvalidValueError("used_fraction", used_fraction, "a number from 0 to 1")
        hours = self.life_years * HOURS_PER_YEAR
        power_w = self.idle_power_w + used_fraction * (self.busy_power_w - self.idle_power_w)
        hourly = electricity_usd_per_hour(power_w, self.electricity_usd_per_kwh, self.pue_ratio)
        months = self.life_years * _MONTHS_PER_YEAR
        return OwnershipCost(
            depreciation_usd=self.price_usd * (1 - self.residual_fraction),
            electricity_usd=hourly * hours,
            space_usd=self.busy_power_w / 1e3 * self.space_usd_per_kw_month * months,
            staff_usd=self.staff_usd_per_year * self.life_years,
            used_hours=hours * used_fraction,
        )


def rent_or_buy_fraction(owned: OwnedHardware, rent_usd_per_hour: float) -> float | None:
    """Share of the time hardware must work for buying to cost what renting by the hour costs.

    Owned cost is linear in the share u, F + V u, rent R u: u = F / (R - V). On buying against
    leasing computers: Walker, The Real Cost of a CPU Hour, IEEE Computer 42(4), 2009.

    Args:
        owned: What one would buy.
        rent_usd_per_hour: Rent of the same, paid for the hours used, > 0.

    Returns:
        The share; None where renting is cheaper at any.

    Raises:
        InvalidValueError: If the rent is not > 0.
    """
    require("rent_usd_per_hour", rent_usd_per_hour, is_above=True)
    fixed = owned.cost(0.0).total_usd
    full = owned.cost(1.0)
    saved = rent_usd_per_hour * full.used_hours - (full.total_usd - fixed)
    return fixed / saved if fixed <= saved and saved > 0 else None
