"""What fleets use: cost, power, carbon, instances, latency and time, linear in instances, load and
ways of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from accelsim.capacity.candidates import Candidate, ServiceAnswer
from accelsim.capacity.fleet import Amount
from accelsim.capacity.jobs import JobWay
from accelsim.capacity.scenario import Scenario
from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray

HOURS_PER_MONTH = HOURS_PER_YEAR / 12
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600.0
_JOULE_PER_KWH = 3.6e6
#: Share of the objective that price decides among fleets of equal latency or time.
_TIE = 1e-3
#: Objective -> what it is called among the amounts.
AMOUNTS = {
    "cost": "budget",
    "energy": "power",
    "carbon": "carbon",
    "latency": "latency",
    "time": "time",
}


@frozen
class Uses:
    """What a scenario's fleets may be made of.

    Attributes:
        scenario: The question.
        offers: Its offers.
        answers: How devices answer services.
    """

    scenario: Scenario
    offers: Sequence[Candidate]
    answers: Mapping[tuple[int, str], ServiceAnswer]

    def amounts(
        self, rate: FloatArray, open_ways: Sequence[JobWay], demand: FloatArray
    ) -> dict[str, Amount]:
        """What instances and load use: cost and carbon a month, mean power, instances."""
        limits, offers = self.scenario.constraints, self.offers
        idle, dynamic = self._power(rate)
        price = np.array([o.quote.instance_usd_per_hour for o in offers]) * HOURS_PER_MONTH
        per_w = np.array([_kgco2e_per_w(o) for o in offers])
        none, one = np.zeros_like(rate), np.ones(len(offers))
        column = np.array([way.column for way in open_ways], dtype=np.int64)
        count = np.array([float(way.count) for way in open_ways])
        runs = np.array([self.scenario.jobs[way.job].runs_per_month for way in open_ways])
        ways = zip(open_ways, runs.tolist(), strict=True)
        usd = runs * np.array([way.cost_usd(offers[way.column], often) for way, often in ways])
        power = runs * np.array([self._energy_j(way) for way in open_ways]) / SECONDS_PER_MONTH
        carbon = power * per_w[column]
        time = np.array([way.time_s for way in open_ways])
        outside = np.array([float(not offer.is_resident) for offer in offers])
        amounts = {
            "budget": Amount(price, none, limits.budget_usd_per_month, usd),
            "power": Amount(idle, dynamic, limits.power_w, power),
            "carbon": Amount(idle * per_w, dynamic * per_w, limits.carbon_kgco2e_per_month, carbon),
            "instance_count": Amount(one, none, limits.instance_count, count),
            "latency": self._latency(demand, price, usd),
            "time": Amount(0 * price, none, None, _broken_ties(time, usd)),
        }
        if limits.residency:
            amounts["residency"] = Amount(outside, none, 0.0, outside[column] * count)
        for name, most in limits.quota.items():
            is_of = np.array([float(name in names_of(offer)) for offer in offers])
            amounts[f"quota.{name}"] = Amount(is_of, none, most, is_of[column] * count)
        return amounts

    def _latency(self, demand: FloatArray, price: FloatArray, usd: FloatArray) -> Amount:
        """Mean time of a request alone on its device, dearer fleets and ways last among equals."""
        seconds = np.zeros((len(demand), len(self.offers)))
        for place in range(len(demand)):
            for column, offer in enumerate(self.offers):
                found = self.answers.get((place, offer.device))
                if found is not None:
                    seconds[place, column] = found.alone_s / demand[place]
        least = (seconds * demand[:, None]).min(where=seconds > 0, initial=math.inf)
        tie = _TIE * least / max(price.max(), _TIE) if math.isfinite(least) else _TIE
        return Amount(price * tie, seconds, per_way=usd * tie)

    def _energy_j(self, way: JobWay) -> float:
        """Energy of one run with the site's overhead; 0 where unknown, which is told apart where it
        is read.
        """
        return (way.energy_j or 0.0) * self.offers[way.column].pue_ratio

    def _power(self, rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Idle power of an instance, and joules of a request on top, site overhead included."""
        idle, dynamic = np.zeros(rate.shape[1]), np.zeros_like(rate)
        for column, offer in enumerate(self.offers):
            for place, service in enumerate(self.scenario.services):
                found = self.answers.get((place, offer.device))
                if found is None or found.idle_w is None or not found.has_energy:
                    continue
                one = rate[place, column] * found.ranks / offer.device_count
                share = service.mean_load_fraction * offer.pue_ratio
                idle[column] = found.idle_w * offer.device_count * offer.pue_ratio
                dynamic[place, column] = found.dynamic_j_at(one) * share
        return idle, dynamic


def _broken_ties(values: FloatArray, usd: FloatArray) -> FloatArray:
    """Values to be small, dearer ways last among equal ones."""
    if not len(values):
        return values
    broken: FloatArray = values + _TIE * values.min() * usd / max(usd.max(), _TIE)
    return broken


def names_of(offer: Candidate) -> tuple[str, ...]:
    """What a quota may call an offer."""
    of = offer.quote.offer
    return (of.provider, str(of.device), of.offer_id)


def _kgco2e_per_w(offer: Candidate) -> float:
    """Carbon of a watt over a month; 0 where unknown, which is told apart where it is read."""
    return (offer.kgco2e_per_kwh or 0.0) * SECONDS_PER_MONTH / _JOULE_PER_KWH
