"""How likely a fleet keeps its limits: joint draws of model error, arrivals and failures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from accelsim.capacity.candidates import Candidate, ServiceAnswer
from accelsim.capacity.fleet import InstanceFleet
from accelsim.capacity.jobs import JobWay
from accelsim.capacity.scenario import Scenario
from accelsim.frozen import frozen
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import FloatArray

_QUANTILE = 0.99


@frozen
class Draws:
    """What the draws need to know of a fleet.

    Attributes:
        scenario: The question.
        offers: Its offers.
        answers: How devices answer services.
        planned: Time over the predicted one that each pair of service and device is planned for.
    """

    scenario: Scenario
    offers: Sequence[Candidate]
    answers: Mapping[tuple[int, str], ServiceAnswer]
    planned: Mapping[tuple[int, str], float]

    def slo_probability(self, fleet: InstanceFleet) -> float:
        """Share of the draws in which each service keeps its limit: the error of each device's
        model is one factor on all its times, arrivals are split at random over the replicas whose
        instances are up.
        """
        count = self.scenario.draws
        return sum(self._holds(fleet, draw) for draw in range(count)) / count

    def deadline_probability(self, taken: Sequence[JobWay]) -> float | None:
        """Share of the draws in which each job keeps its deadline; None where there are none."""
        if not taken:
            return None
        count = self.scenario.draws
        return sum(self._in_time(taken, draw) for draw in range(count)) / count

    def _in_time(self, taken: Sequence[JobWay], draw: int) -> bool:
        streams, jobs = RandomStreams(self.scenario.seed), self.scenario.jobs
        return all(
            way.drawn_s(
                self._model_error(self.offers[way.column].device, draw),
                streams.stream("failures of jobs", draw, way.job),
            )
            <= jobs[way.job].deadline_s
            for way in taken
        )

    def _model_error(self, device: str, draw: int) -> float:
        streams = RandomStreams(self.scenario.seed)
        return float(streams.stream(f"model error {device}", draw).standard_normal())

    def _holds(self, fleet: InstanceFleet, draw: int) -> bool:
        for place, service in enumerate(self.scenario.services):
            load = self._load_of_those_up(fleet, place, draw)
            if load is None:
                return False
            late = 0.0
            for column in np.flatnonzero(load).tolist():
                share = load[column] / load.sum()
                rate = service.requests_per_s * share
                late += share * self._late_share(fleet, (place, column), rate, draw)
            if late > 1 - _QUANTILE:
                return False
        return True

    def _load_of_those_up(self, fleet: InstanceFleet, place: int, draw: int) -> FloatArray | None:
        """Load of each offer, that of instances that are down on the others; None where all are."""
        load: FloatArray = np.where(fleet.count[place] > 0, fleet.load_per_s[place], 0.0)
        if all(self._up_fraction(c) == 1 for c in np.flatnonzero(fleet.count[place]).tolist()):
            return load
        for column in np.flatnonzero(fleet.count[place]).tolist():
            load[column] *= self._up(fleet, (place, column), draw) / fleet.count[place, column]
        return load if load.any() else None

    def _up_fraction(self, column: int) -> float:
        return self.scenario.reliability.up_fraction(self.offers[column].quote.kind)

    def _up(self, fleet: InstanceFleet, pair: tuple[int, int], draw: int) -> int:
        """Instances of an offer that are up."""
        count, share = int(fleet.count[pair]), self._up_fraction(pair[1])
        streams = RandomStreams(self.scenario.seed)
        return int(streams.stream("failures", draw, *pair).binomial(count, share))

    def _late_share(
        self, fleet: InstanceFleet, pair: tuple[int, int], rate_per_s: float, draw: int
    ) -> float:
        """Share of the answers of one replica that come late, at the load of all of its kind."""
        place, column = pair
        offer = self.offers[column]
        found = self.answers[place, offer.device]
        factor = math.exp(found.log_sigma * self._model_error(offer.device, draw))
        rate = rate_per_s / (self._up(fleet, pair, draw) * (offer.device_count // found.ranks))
        if rate == 0:
            return 0.0
        streams = RandomStreams(self.scenario.seed)
        generator = streams.stream("checked arrivals", draw, place, column)
        return found.late_share(rate, self.planned[place, offer.device], factor, generator)
