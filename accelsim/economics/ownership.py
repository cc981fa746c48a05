"""Hourly price of hardware one owns: purchase spread over its useful hours, plus electricity.

Straight-line amortisation, the method of the cost model in Barroso, Hölzle and Ranganathan, "The
Datacenter as a Computer", 3rd ed. (2018), chapter 6, without interest. It prices boards that no
cloud rents, such as most FPGAs, and compares buying with renting.
"""

from __future__ import annotations

import math
from typing import Final

from accelsim.errors import InvalidValueError

__all__ = ["HOURS_PER_YEAR", "amortised_usd_per_hour", "electricity_usd_per_hour"]

#: Hours of a Julian year, 365.25 days.
HOURS_PER_YEAR: Final = 8766.0


def electricity_usd_per_hour(
    power_w: float, electricity_usd_per_kwh: float, pue_ratio: float = 1.0
) -> float:
    """Electricity of one hour at a constant power.

    Barroso et al., The Datacenter as a Computer, 3rd edition, 2018, chapter on modelling costs;
    power usage effectiveness: ISO/IEC 30134-2:2016.

    Args:
        power_w: Power of the equipment, watts, >= 0.
        electricity_usd_per_kwh: USD per kWh, >= 0.
        pue_ratio: Power usage effectiveness of the site, >= 1.

    Returns:
        USD per hour.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    _require("power_w", power_w, 0.0)
    _require("electricity_usd_per_kwh", electricity_usd_per_kwh, 0.0)
    _require("pue_ratio", pue_ratio, 1.0)
    return power_w / 1e3 * electricity_usd_per_kwh * pue_ratio


def amortised_usd_per_hour(
    purchase_usd: float,
    life_years: float,
    utilisation_fraction: float,
    power_w: float,
    electricity_usd_per_kwh: float,
    pue_ratio: float = 1.0,
    *,
    idle_power_w: float = 0.0,
    residual_fraction: float = 0.0,
) -> float:
    """Price of one *useful* hour of hardware one owns.

    Barroso et al., The Datacenter as a Computer, 3rd edition, 2018, chapter on modelling costs.

    purchase·(1 − residual) / (life · hours per year · utilisation) + electricity of one busy hour
    and of the (1 − utilisation)/utilisation idle hours that go with it.

    Args:
        purchase_usd: Purchase price, USD, >= 0.
        life_years: Years until it is replaced, > 0.
        utilisation_fraction: Share of all hours in which it does useful work, in (0, 1].
        power_w: Mean power while working, watts, >= 0.
        electricity_usd_per_kwh: USD per kWh, >= 0.
        pue_ratio: Power usage effectiveness of the site, >= 1.
        idle_power_w: Power while idle, watts, >= 0; 0 means switched off.
        residual_fraction: Share of the purchase price got back at the end, in [0, 1].

    Returns:
        USD per useful hour.

    Raises:
        InvalidValueError: If an argument is outside its range.
    """
    _require("purchase_usd", purchase_usd, 0.0)
    _require("residual_fraction", residual_fraction, 0.0, 1.0)
    _require("idle_power_w", idle_power_w, 0.0)
    if not (life_years > 0 and math.isfinite(life_years)):
        raise InvalidValueError("life_years", life_years, "a finite number > 0")
    if not 0 < utilisation_fraction <= 1:
        raise InvalidValueError(
            "utilisation_fraction", utilisation_fraction, "more than 0 and at most 1"
        )
    useful_hours = life_years * HOURS_PER_YEAR * utilisation_fraction
    idle_per_busy = (1 - utilisation_fraction) / utilisation_fraction
    busy = electricity_usd_per_hour(power_w, electricity_usd_per_kwh, pue_ratio)
    idle = electricity_usd_per_hour(idle_power_w, electricity_usd_per_kwh, pue_ratio)
    return purchase_usd * (1 - residual_fraction) / useful_hours + busy + idle * idle_per_busy


def _require(field: str, value: float, lowest: float, highest: float = math.inf) -> None:
    if not (lowest <= value <= highest and math.isfinite(value)):
        allowed = f"a finite number >= {lowest:g}" + (
            "" if highest == math.inf else f" and <= {highest:g}"
        )
        raise InvalidValueError(field, value, allowed)
