"""What a capacity plan answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import ClassVar

import accelsim
from accelsim.capacity.candidates import OWNED
from accelsim.capacity.scenario import Scenario
from accelsim.economics.result import JOULES_PER_KWH
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.quantity import decimal, usd
from accelsim.result import Metric, Provenance, Result

#: Probability from which on no figure is given.
_SURE = 0.99
#: Ratio of times from which on it is said as one.
_TIMES = 2.0
_GOALS = {
    "cost": "cheapest",
    "energy": "least in energy",
    "carbon": "least in carbon",
    "latency": "fastest to answer",
    "time": "fastest to be done",
}


@frozen
class OfferCount:
    """Instances of one offer.

    Attributes:
        offer: provider/region/instance, with its price kind unless on-demand.
        device: Device in it.
        count: Instances.
        cost_usd_per_month: Of all of them.
    """

    offer: str
    device: str
    count: int
    cost_usd_per_month: float

    def to_dict(self) -> Document:
        """Plain values."""
        return asdict(self)


@frozen
class FleetAnswer:
    """A fleet and what is known of it.

    Attributes:
        offers: Instances.
        device_count: Devices in use.
        cost_usd_per_month: Rent of whole instances.
        energy_j_per_month: Of the devices in use, and of hosts where training counts them; None
            where unknown.
        carbon_kgco2e_per_month: Operational, sites' overhead included; None where unknown.
        headroom_fraction: How much slower than predicted everything may be while all limits of
            time still hold.
        placement: Service or job on its offers: layout or plan, engine or trainer, formats.
        slo_probability: Probability that every service keeps its latency; None where there are no
            services or it is not asked for.
        deadline_probability: The same of jobs and their deadlines.
        half_width: How far a probability may be off to either side.
        embodied_kgco2e_per_month: Carbon of making the hardware, spread over its life by the time
            used: least and most, each instance counted as a server.
        log_sigma: Largest spread of ln(true / predicted) of the times that its cost rests on.
    """

    offers: tuple[OfferCount, ...]
    device_count: int
    cost_usd_per_month: float
    energy_j_per_month: float | None
    carbon_kgco2e_per_month: float | None
    headroom_fraction: float
    placement: tuple[Values, ...]
    slo_probability: float | None = None
    deadline_probability: float | None = None
    half_width: float = 0.0
    embodied_kgco2e_per_month: tuple[float, float] = (0.0, 0.0)
    log_sigma: float = 0.0

    @property
    def instance_count(self) -> int:
        """Instances in all."""
        return sum(offer.count for offer in self.offers)

    @property
    def choices(self) -> tuple[str, ...]:
        """What is left out to see what else would do: devices, and hardware of one's own."""
        return tuple(o.offer if o.offer.startswith(OWNED) else o.device for o in self.offers)

    @property
    def objectives(self) -> tuple[float, float, float]:
        """Cost, energy and carbon; what is unknown as infinite."""
        energy, carbon = (
            math.inf if amount is None else amount
            for amount in (self.energy_j_per_month, self.carbon_kgco2e_per_month)
        )
        return self.cost_usd_per_month, energy, carbon

    def to_dict(self) -> Document:
        """Plain values, without the placement."""
        return {
            "offers": [offer.to_dict() for offer in self.offers],
            "device_count": self.device_count,
            "instance_count": self.instance_count,
            "cost_usd_per_month": self.cost_usd_per_month,
            "energy_j_per_month": self.energy_j_per_month,
            "carbon_kgco2e_per_month": self.carbon_kgco2e_per_month,
            "embodied_kgco2e_per_month": list(self.embodied_kgco2e_per_month),
            "slo_probability": self.slo_probability,
            "deadline_probability": self.deadline_probability,
            "probability_half_width": self.half_width,
            "headroom_fraction": self.headroom_fraction,
            "log_sigma": self.log_sigma,
        }


@frozen
class CapacityPlan(Result):
    """A recommended fleet, or why there is none.

    Attributes:
        scenario: The question.
        recommended: The best fleet; None where constraints contradict each other.
        certainty: What the same takes for more certainty about the model: the probability, and the
            fleet's figures, or no offers where none holds.
        candidates: A row for each device: its best fleet alone, a bound of its cost, or the one
            reason why it cannot.
        alternatives: The best without the devices of those before, best first.
        pareto: Fleets that no other beats in cost, energy and carbon.
        ways: Of each service of tokens: rent as recommended, buy or colocate the same devices, or
            call a hosted API; a way without a price has the reason.
        sensitivity: What another price or load would choose.
        conflicts: Constraints that no fleet keeps together, each of them needed for that.
        near_misses: What each of them would have to become.
        cost_by_month: Under growth; empty for one month.
        reason: Why, in words.
        warnings: What is not counted.
    """

    kind: ClassVar[str] = "capacity plan"
    nested: ClassVar[frozenset[str]] = frozenset(
        (
            *("recommended", "certainty", "candidates", "alternatives", "pareto", "ways"),
            *("sensitivity", "conflicts", "near_misses", "placement", "cost_by_month"),
        )
    )
    scenario: Scenario
    recommended: FleetAnswer | None = None
    certainty: tuple[Values, ...] = ()
    candidates: tuple[Values, ...] = ()
    alternatives: tuple[FleetAnswer, ...] = ()
    pareto: tuple[FleetAnswer, ...] = ()
    ways: tuple[Values, ...] = ()
    sensitivity: tuple[Values, ...] = ()
    conflicts: tuple[str, ...] = ()
    near_misses: tuple[Values, ...] = ()
    cost_by_month: tuple[float | None, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def inputs(self) -> Values:
        """The scenario in plain values."""
        return self.scenario.model_dump(mode="json")

    @property
    def provenance(self) -> Provenance:
        """Version, scenario and seed."""
        return Provenance(accelsim.__version__, self.scenario.seed, {"scenario": self.scenario})

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures of the recommended fleet."""
        best = self.recommended
        if best is None:
            return {}
        figures = best.to_dict()
        low, high = best.embodied_kgco2e_per_month
        embodied = {"embodied_kgco2e_per_month": Metric(None, low, high)}
        listed = {"offers", *embodied}
        return {name: Metric(figures[name]) for name in figures if name not in listed} | embodied

    def figures(self) -> Document:
        """The answer in plain values."""
        best = self.recommended
        return {
            "scenario": self.scenario.name,
            "objective": self.scenario.objective,
            "recommended": None if best is None else best.to_dict(),
            "certainty": _dicts(self.certainty),
            "candidates": _dicts(self.candidates),
            "alternatives": [fleet.to_dict() for fleet in self.alternatives],
            "pareto": [fleet.to_dict() for fleet in self.pareto],
            "ways": _dicts(self.ways),
            "sensitivity": _dicts(self.sensitivity),
            "conflicts": list(self.conflicts),
            "near_misses": _dicts(self.near_misses),
            "reason": self.reason,
            "placement": [] if best is None else _dicts(best.placement),
            "cost_by_month": list(self.cost_by_month),
        }


def _dicts(rows: Iterable[Values]) -> list[Document]:
    return [dict(row) for row in rows]


def reason(scenario: Scenario, best: FleetAnswer, others: Sequence[FleetAnswer]) -> str:
    """Why a fleet is recommended, in a paragraph.

    Args:
        scenario: The question.
        best: The fleet.
        others: Runner-ups.
    """
    loads = [
        f"carries {service.peak_per_s:,.4g} requests/s of {service.model} "
        + " and ".join(f"{words} {limit * 1e3:,.0f} ms" for _, words, limit in service.limits)
        + f" for {100 * service.targets.attainment_fraction:g} % of them"
        for service in scenario.services
    ]
    loads += [f"does {job.name} within {job.deadline_s / 3600:,.3g} h" for job in scenario.jobs]
    text = (
        f"{layouts(best)} is the {_GOALS[scenario.objective]} fleet that {', '.join(loads)}: "
        f"{usd(best.cost_usd_per_month)} a month, {_kwh(best)}, and "
        f"{_embodied(best)} for making the hardware. {_sureness(scenario, best)}"
    )
    if not others:
        return text
    second = others[0]
    ratio = second.cost_usd_per_month / best.cost_usd_per_month
    return text + (
        f" The runner-up, {layouts(second)}, costs {usd(second.cost_usd_per_month)}, "
        f"{ratio:.2f} times as much, with {_kwh(second)}."
    )


def _sureness(scenario: Scenario, best: FleetAnswer) -> str:
    """How sure its limits of time are."""
    fails = scenario.reliability.instance_mtbf_s or scenario.reliability.spot_mtbf_s
    over = "the error of the model" + (" and failures" if fails else "")
    named = {"the latency": best.slo_probability, "each deadline": best.deadline_probability}
    odds = [
        f"{what} holds with {_chance(share, best.half_width)}"
        for what, share in named.items()
        if share is not None
    ]
    longer = 1.0 + best.headroom_fraction
    is_ratio = longer > _TIMES
    much = (
        f"{decimal(longer)} times as long as"
        if is_ratio
        else f"{100 * (longer - 1):.0f} % longer than"
    )
    return f"All may take {much} predicted; {' and '.join(odds)} over {over}."


def _chance(share: float, half_width: float) -> str:
    """A probability with its half-width; near one, what it is above."""
    low = share - half_width
    return "more than 99 %" if low > _SURE else f"{100 * share:.0f} ± {100 * half_width:.0f} %"


def layouts(fleet: FleetAnswer) -> str:
    """Replicas, devices and instances of a fleet in words.

    Args:
        fleet: The fleet.
    """
    return "; ".join(dict.fromkeys(_words(row) for row in fleet.placement))


def _words(row: Values) -> str:
    """A service's replicas or a job's plan on its devices."""
    devices = f"{row['device_count']:,} {row['device']} in {_instances(row)}"
    layout = row["layout"]
    return f"{devices} as {layout}" if "job" in row or "tp" in layout else devices


def _instances(row: Values) -> str:
    offers = row["offers"]
    total = sum(offer["count"] for offer in offers)
    names = " + ".join(f"{offer['count']} x {offer['offer']}" for offer in offers)
    return f"{total:,} instance{'' if total == 1 else 's'} ({names})"


def _embodied(fleet: FleetAnswer) -> str:
    low, high = fleet.embodied_kgco2e_per_month
    return f"{decimal(low)} to {decimal(high)} kg CO2e"


def _kwh(fleet: FleetAnswer) -> str:
    energy = fleet.energy_j_per_month
    return "unknown energy" if energy is None else f"{decimal(energy / JOULES_PER_KWH)} kWh"
