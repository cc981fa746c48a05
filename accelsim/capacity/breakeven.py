"""Volumes at which the development of an FPGA design or of a chip pays off against buying GPUs.

Each option costs its development once (NRE), and per unit of demand the hardware that carries it
and its electricity: cost(v) = NRE + v (units per demand x unit price + lifetime energy). Two such
lines cross where the difference in NRE equals the difference in unit cost times the volume (Magaki
et al., ASIC Clouds, ISCA 2016, section 8: the "two-for-two" rule comes from the same lines). A unit
of demand is a sustained rate, so that an option that is twice as fast needs half the hardware.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from accelsim.economics.result import HOURS_PER_YEAR, electricity_usd_per_hour
from accelsim.errors import InvalidValueError
from accelsim.estimation.estimate import Estimate
from accelsim.frozen import frozen
from accelsim.quantity import usd

_LARGEST = 1e15


@frozen
class DeploymentOption:
    """One way to serve a demand.

    Attributes:
        name: Device or design.
        nre_usd: Development once: design, verification, masks; 0 for a device one buys, USD.
        unit_usd: Price of one more unit of hardware, USD.
        rate_per_s: Inferences per second of one unit, > 0.
        power_w: Mean power of one unit at that rate, W.
        usd_per_hour: Rent of one unit, electricity in it; 0 of what is bought, USD.
    """

    name: str
    nre_usd: float
    unit_usd: float
    rate_per_s: float
    power_w: float
    usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        for field in ("nre_usd", "unit_usd", "power_w", "usd_per_hour"):
            value = getattr(self, field)
            if not 0 <= value <= _LARGEST:
                raise InvalidValueError(
                    f"{self.name}: {field}", value, f"a number from 0 to {_LARGEST:g}"
                )
        if not 0 < self.rate_per_s <= _LARGEST:
            raise InvalidValueError(
                f"{self.name}: rate_per_s", self.rate_per_s, f"more than 0, up to {_LARGEST:g}"
            )

    def usd_per_demand(
        self, demand_per_s: float, life_years: float, electricity_usd_per_kwh: float, pue: float
    ) -> float:
        """Hardware and electricity over its life that carry one demand, USD.

        Args:
            demand_per_s: Sustained inferences per second of one demand.
            life_years: Years of service.
            electricity_usd_per_kwh: Energy price.
            pue: Power usage effectiveness of the site.
        """
        units = demand_per_s / self.rate_per_s
        energy = electricity_usd_per_hour(self.power_w, electricity_usd_per_kwh, pue)
        hours = HOURS_PER_YEAR * life_years
        return units * (self.unit_usd + (energy + self.usd_per_hour) * hours)


def rented(bought: DeploymentOption, usd_per_hour: float) -> DeploymentOption:
    """The same unit rented all its life, electricity in the rent.

    Args:
        bought: The unit as it is bought.
        usd_per_hour: Rent of one, USD, >= 0.
    """
    return replace(bought, unit_usd=0.0, power_w=0.0, usd_per_hour=usd_per_hour)


@frozen
class BreakevenPoint:
    """Where an option becomes cheaper than the reference.

    Attributes:
        option: Its name.
        reference: What it is compared with.
        nre_usd: Its development.
        usd_per_demand: Its hardware and electricity per demand.
        reference_usd_per_demand: The reference's.
        volume: Demands from which it is cheaper; None if never, 0 if from the first.
        units: Its hardware units at that volume; None if never.
        demand_per_s: Sustained inferences per second of one demand.
        life_years: Years of service.
        rate_per_s: Inferences per second of one of its units.
        reference_rate_per_s: The reference's.
        reason: Why there is no volume; empty where there is one.
    """

    option: str
    reference: str
    nre_usd: float
    usd_per_demand: float
    reference_usd_per_demand: float
    volume: float | None
    units: float | None
    demand_per_s: float
    life_years: float
    rate_per_s: float
    reference_rate_per_s: float
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Field by field."""
        return asdict(self)


def break_even_volume(
    nre_usd: float, unit_usd: float, reference_nre_usd: float, reference_unit_usd: float
) -> float:
    """Volume at which NRE + v unit equals the reference's; 0 if cheaper from the start, infinite if
    never.

    Args:
        nre_usd: Development, USD.
        unit_usd: Cost per demand.
        reference_nre_usd: The reference's development.
        reference_unit_usd: The reference's cost per demand.
    """
    more_nre, saved = nre_usd - reference_nre_usd, reference_unit_usd - unit_usd
    if more_nre <= 0 and saved >= 0:
        return 0.0
    if saved <= 0:
        return math.inf
    return more_nre / saved


def breakeven(
    reference: DeploymentOption,
    options: Sequence[DeploymentOption],
    *,
    demand_per_s: float = 1000.0,
    life_years: float = 3.0,
    electricity_usd_per_kwh: float = 0.10,
    pue: float = 1.0,
) -> tuple[BreakevenPoint, ...]:
    """Break-even volume of each option against the reference.

    Args:
        reference: Usually a GPU one buys.
        options: FPGA designs and chips.
        demand_per_s: Sustained inferences per second that make one unit of demand.
        life_years: Years of service.
        electricity_usd_per_kwh: Energy price.
        pue: Power usage effectiveness.

    Raises:
        InvalidValueError: If an argument is outside its range or there is no option.
    """
    if not options:
        remedy = "Name an FPGA or a chip: --fpga or --asic on the command line."
        raise InvalidValueError("options", "none", "at least one option", remedy)
    for field, value in (("demand_per_s", demand_per_s), ("life_years", life_years)):
        if not 0 < value <= _LARGEST:
            raise InvalidValueError(field, value, "a finite number above 0")
    terms = (demand_per_s, life_years, electricity_usd_per_kwh, pue)
    base = reference.usd_per_demand(*terms)
    return tuple(
        _point(option, reference, option.usd_per_demand(*terms), base, terms[:2])
        for option in options
    )


def _point(
    option: DeploymentOption,
    reference: DeploymentOption,
    cost: float,
    base: float,
    question: tuple[float, float],
) -> BreakevenPoint:
    volume = break_even_volume(option.nre_usd, cost, reference.nre_usd, base)
    names = (option.name, reference.name, option.nre_usd, cost, base)
    rates = (option.rate_per_s, reference.rate_per_s)
    if math.isinf(volume):
        both = f"{usd(cost)} against {usd(base)}"
        reason = f"its hardware and electricity cost more per demand ({both})"
        if option.nre_usd < reference.nre_usd:
            most = (reference.nre_usd - option.nre_usd) / (cost - base)
            reason += f"; it is cheaper below {most:,.1f} demands, since its development costs less"
        return BreakevenPoint(*names, None, None, *question, *rates, reason)
    units = volume * question[0] / option.rate_per_s
    return BreakevenPoint(*names, volume, units, *question, *rates)


def option_of_estimate(
    estimate: Estimate, unit_usd: float, nre_usd: float = 0.0
) -> DeploymentOption:
    """An option whose rate and power are an estimate's.

    Args:
        estimate: Inference on the device.
        unit_usd: Price of one device.
        nre_usd: Development once.

    Raises:
        InvalidValueError: If the estimate does not fit or has no power.
    """
    label = estimate.device
    if estimate.throughput_per_s is None:
        raise InvalidValueError(
            f"{label}: memory", estimate.memory_bytes, "a model that fits", "Use a larger device."
        )
    if estimate.average_power_w is None:
        raise InvalidValueError(f"{label}: power", None, "a device whose profile has a power limit")
    return DeploymentOption(
        label, nre_usd, unit_usd, estimate.throughput_per_s, estimate.average_power_w
    )
