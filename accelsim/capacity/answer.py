"""What a capacity plan answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import ClassVar

import accelsim
from accelsim.capacity.candidates import OWNED
from accelsim.capacity.scenario import Constraints, Scenario
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result


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
        cost_usd_per_month: Rent.
        energy_j_per_month: Of devices and site overhead; None where unknown.
        carbon_kgco2e_per_month: Operational; None where a region's is unknown.
        slo_probability: Share of the draws in which every service keeps its latency.
        headroom_fraction: Load it could carry beyond the one asked for, within the latency.
        placement: Service, offer, instances, requests per second; job, offer, instances, time.
        deadline_probability: Share of the draws in which every job keeps its deadline; None where
            there are none.
        embodied_kgco2e_per_month: Carbon of making the hardware, spread over its life by the time
            used: least and most, each instance counted as a server.
    """

    offers: tuple[OfferCount, ...]
    cost_usd_per_month: float
    energy_j_per_month: float | None
    carbon_kgco2e_per_month: float | None
    slo_probability: float
    headroom_fraction: float
    placement: tuple[Values, ...]
    deadline_probability: float | None = None
    embodied_kgco2e_per_month: tuple[float, float] = (0.0, 0.0)

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

    def keeps(self, limits: Constraints) -> bool:
        """Whether limits of time hold as often as asked for."""
        deadline = self.deadline_probability
        return self.slo_probability >= limits.slo_probability and (
            deadline is None or deadline >= limits.deadline_probability
        )

    def to_dict(self) -> Document:
        """Plain values, without the placement."""
        return {
            "offers": [offer.to_dict() for offer in self.offers],
            "cost_usd_per_month": self.cost_usd_per_month,
            "energy_j_per_month": self.energy_j_per_month,
            "carbon_kgco2e_per_month": self.carbon_kgco2e_per_month,
            "embodied_kgco2e_per_month": list(self.embodied_kgco2e_per_month),
            "slo_probability": self.slo_probability,
            "deadline_probability": self.deadline_probability,
            "headroom_fraction": self.headroom_fraction,
        }


@frozen
class CapacityPlan(Result):
    """A recommended fleet, or why there is none.

    Attributes:
        scenario: The question.
        recommended: The best fleet; None where constraints contradict each other.
        alternatives: The best without the devices of those before, best first.
        pareto: Fleets that no other beats in cost, energy and carbon.
        sensitivity: What another price, load or certainty would choose.
        conflicts: Constraints that no fleet keeps together, each of them needed for that.
        cost_by_month: Under growth; empty for one month.
        reason: Why, in words.
        warnings: What is not counted, and what was left out for which reason.
    """

    kind: ClassVar[str] = "capacity plan"
    nested: ClassVar[frozenset[str]] = frozenset(
        (
            *("recommended", "alternatives", "pareto", "sensitivity", "conflicts"),
            *("placement", "cost_by_month"),
        )
    )
    scenario: Scenario
    recommended: FleetAnswer | None = None
    alternatives: tuple[FleetAnswer, ...] = ()
    pareto: tuple[FleetAnswer, ...] = ()
    sensitivity: tuple[Values, ...] = ()
    conflicts: tuple[str, ...] = ()
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
            "alternatives": [fleet.to_dict() for fleet in self.alternatives],
            "pareto": [fleet.to_dict() for fleet in self.pareto],
            "sensitivity": [dict(row) for row in self.sensitivity],
            "conflicts": list(self.conflicts),
            "reason": self.reason or _no_fleet(self.conflicts),
            "placement": [] if best is None else [dict(row) for row in best.placement],
            "cost_by_month": list(self.cost_by_month),
        }


def _no_fleet(conflicts: Sequence[str]) -> str:
    return f"No fleet keeps all of these: {', '.join(conflicts)}. Loosen one of them."


def reason(scenario: Scenario, best: FleetAnswer, others: Sequence[FleetAnswer]) -> str:
    """Why a fleet is recommended, in a paragraph.

    Args:
        scenario: The question.
        best: The fleet.
        others: Runner-ups.
    """
    goal = {"energy": "least in energy", "carbon": "least in carbon"}
    goal |= {"cost": "cheapest", "latency": "fastest to answer", "time": "fastest to be done"}
    loads = [
        f"carries {service.requests_per_s:,.0f} requests/s of {service.model} "
        + " and ".join(f"{words} {limit * 1e3:,.0f} ms" for _, words, limit in service.limits)
        + " at p99"
        for service in scenario.services
    ]
    loads += [f"does {job.name} within {job.deadline_s / 3600:,.3g} h" for job in scenario.jobs]
    held = {"the latency": best.slo_probability if scenario.services else None}
    held["each deadline"] = best.deadline_probability
    odds = [f"{name} holds in {share:.0%}" for name, share in held.items() if share is not None]
    text = (
        f"{_words(best)} is the {goal[scenario.objective]} fleet that {', '.join(loads)}: "
        f"{best.cost_usd_per_month:,.0f} USD a month, {_kwh(best)}, and "
        f"{_embodied(best)} for making the hardware. "
        f"It has {best.headroom_fraction:.0%} headroom, and {', '.join(odds)} "
        f"of {scenario.draws} draws of model error, arrivals and failures."
    )
    if not others:
        return text + " Nothing else does within the constraints."
    second = others[0]
    ratio = second.cost_usd_per_month / best.cost_usd_per_month
    return text + (
        f" The runner-up, {_words(second)}, costs {second.cost_usd_per_month:,.0f} USD, "
        f"{ratio:.2f} times as much, with {_kwh(second)}."
    )


def doubts(recommended: FleetAnswer, scenario: Scenario) -> tuple[str, ...]:
    """What to know of a fleet that keeps its limits of time less often than asked for.

    Args:
        recommended: The fleet.
        scenario: The question.
    """
    limits = scenario.constraints
    words = []
    for what, found, wanted in (
        ("latency holds", recommended.slo_probability, limits.slo_probability),
        ("deadlines hold", recommended.deadline_probability, limits.deadline_probability),
    ):
        if found is not None and found < wanted:
            words.append(f"no fleet whose {what} in {wanted:.0%} of the draws: {found:.0%}")
    return tuple(words)


def _words(fleet: FleetAnswer) -> str:
    return " + ".join(f"{offer.count} x {offer.device} ({offer.offer})" for offer in fleet.offers)


def _embodied(fleet: FleetAnswer) -> str:
    low, high = fleet.embodied_kgco2e_per_month
    return f"{low:,.0f} to {high:,.0f} kg CO2e"


def _kwh(fleet: FleetAnswer) -> str:
    energy = fleet.energy_j_per_month
    return "unknown energy" if energy is None else f"{energy / 3.6e6:,.0f} kWh"
