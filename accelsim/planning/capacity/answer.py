"""What a capacity plan answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import accelsim
from accelsim.planning.capacity.scenario import Scenario
from accelsim.result import Metric, Provenance, Result

__all__ = ["CapacityPlan", "FleetAnswer", "OfferCount", "reason"]


@dataclass(frozen=True, slots=True)
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """A fleet and what is known of it.

    Attributes:
        offers: Instances.
        cost_usd_per_month: Rent.
        energy_j_per_month: Of devices and site overhead; None where unknown.
        carbon_kgco2e_per_month: Operational; None where a region's is unknown.
        slo_probability: Share of the draws in which every service keeps its latency.
        headroom_fraction: Load it could carry beyond the one asked for, within the latency.
        placement: Service, offer, instances, requests per second.
        deadline_probability: None: no service has a deadline.
    """

    offers: tuple[OfferCount, ...]
    cost_usd_per_month: float
    energy_j_per_month: float | None
    carbon_kgco2e_per_month: float | None
    slo_probability: float
    headroom_fraction: float
    placement: tuple[Mapping[str, Any], ...]
    deadline_probability: float | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of its offers."""
        return tuple(offer.device for offer in self.offers)

    @property
    def objectives(self) -> tuple[float, float, float]:
        """Cost, energy and carbon; what is unknown as infinite."""
        energy, carbon = (
            math.inf if amount is None else amount
            for amount in (self.energy_j_per_month, self.carbon_kgco2e_per_month)
        )
        return self.cost_usd_per_month, energy, carbon

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the placement."""
        return {
            "offers": [offer.to_dict() for offer in self.offers],
            "cost_usd_per_month": self.cost_usd_per_month,
            "energy_j_per_month": self.energy_j_per_month,
            "carbon_kgco2e_per_month": self.carbon_kgco2e_per_month,
            "slo_probability": self.slo_probability,
            "deadline_probability": self.deadline_probability,
            "headroom_fraction": self.headroom_fraction,
        }


@dataclass(frozen=True, slots=True)
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
    sensitivity: tuple[Mapping[str, Any], ...] = ()
    conflicts: tuple[str, ...] = ()
    cost_by_month: tuple[float | None, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def inputs(self) -> Mapping[str, Any]:
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
        return {name: Metric(figures[name]) for name in figures if name != "offers"}

    def figures(self) -> dict[str, Any]:
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
    goal = {"cost": "cheapest", "energy": "least in energy", "carbon": "least in carbon"}
    load = ", ".join(
        f"{service.requests_per_s:,.0f} requests/s of {service.model} within "
        f"{service.latency_p99_s * 1e3:,.0f} ms at p99"
        for service in scenario.services
    )
    text = (
        f"{_words(best)} is the {goal[scenario.objective]} fleet that carries {load}: "
        f"{best.cost_usd_per_month:,.0f} USD a month, {_kwh(best)}. "
        f"It has {best.headroom_fraction:.0%} headroom, and the latency holds in "
        f"{best.slo_probability:.0%} of {scenario.draws} draws of model error and arrivals."
    )
    if not others:
        return text + " No other device carries the load within the constraints."
    second = others[0]
    ratio = second.cost_usd_per_month / best.cost_usd_per_month
    return text + (
        f" The runner-up, {_words(second)}, costs {second.cost_usd_per_month:,.0f} USD, "
        f"{ratio:.2f} times as much, with {_kwh(second)}."
    )


def _words(fleet: FleetAnswer) -> str:
    return " + ".join(f"{offer.count} x {offer.device} ({offer.offer})" for offer in fleet.offers)


def _kwh(fleet: FleetAnswer) -> str:
    energy = fleet.energy_j_per_month
    return "unknown energy" if energy is None else f"{energy / 3.6e6:,.0f} kWh"
