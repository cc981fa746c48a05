"""A service that generates tokens: replicas of continuous batches, simulated request by request.

The score of a device is what full batches of its replica serve; what it carries is found by halving
a bracket of rates with simulations of the same random draws, and a draw is one more simulation with
all steps longer by the error drawn (`accelsim.serving`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from accelsim.capacity.candidates import ServiceAnswer, device_answer
from accelsim.capacity.scenario import Service
from accelsim.catalog import workloads as workload_catalog
from accelsim.economics.device_price import DevicePrice
from accelsim.errors import InputError
from accelsim.estimation.options import run_options
from accelsim.frozen import frozen
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.memory_capacity import LoadShape, full_batch
from accelsim.serving.options import ServingOptions, SloTargets
from accelsim.serving.plan import ReplicaPlan, replica_plan
from accelsim.serving.result import ServingResult
from accelsim.serving.serve import simulate_plan
from accelsim.serving.steps.combined_steps import ScaledSteps
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams

if TYPE_CHECKING:
    import numpy as np

_QUANTILE = 0.99
#: Requests that a rate is judged by: 10 may be late. Fewer hide a queue that grows.
_REQUESTS = 1000
#: Shares of the bound where the search for a rate begins, of which a usual one is tried first, and
#: the ratio that it ends at.
_LEAST = 1 / 64
_USUAL = 0.5
_TOLERANCE = 1.04


@frozen(eq=False)
class TokenAnswer:
    """How a replica answers requests of tokens; see `ServiceAnswer`.

    Attributes:
        plan: The replica, with its targets.
        load: Lengths of requests.
        full_per_s: Requests per second of full batches.
        alone_s: Median time of a request alone.
        idle_w: Power of one device without load; None where unknown.
        dynamic_j: Energy of a request on top, at half the bound.
    """

    plan: ReplicaPlan
    load: Arrivals
    full_per_s: float
    alone_s: float = math.nan
    idle_w: float | None = None
    dynamic_j: float = math.nan

    @classmethod
    def of(cls, service: Service, device: str, load: Arrivals) -> TokenAnswer:
        """A device's answer.

        Args:
            service: What is served.
            device: Name of a device or slice.
            load: Lengths of its requests.

        Raises:
            InputError: If the replica does not fit, or nothing is known of its steps.
        """
        columns = load.columns(RandomStreams(0))
        targets = SloTargets(
            service.ttft_p99_s, service.tpot_p99_s, service.latency_p99_s, _QUANTILE
        )
        options = ServingOptions(engine=service.engine, tp=service.tp, slo=targets)
        lengths = {"seq_len", "output_len"}
        run = run_options(None, {n: v for n, v in service.run.items() if n not in lengths})
        plan = replica_plan(service.model, device, run, options, max_context=columns.longest)
        bare = cls(plan, load, full_batch(plan, LoadShape.of(columns)).requests_per_s)
        alone, busy = (
            bare._simulated(bare.full_per_s * share, 1.0, 0) for share in (_LEAST, _USUAL)
        )
        idle_w, energy_j = plan.steps.idle_w, busy.energy_j
        ranks = plan.options.devices_per_replica
        known = idle_w is not None and energy_j is not None
        return replace(
            bare,
            alone_s=alone.e2e_s["p50"] or math.nan,
            idle_w=idle_w / ranks if known and idle_w is not None else None,
            dynamic_j=max((energy_j or 0.0) - (idle_w or 0.0) * busy.duration_s, 0.0)
            / busy.completed
            if known
            else math.nan,
        )

    @property
    def ranks(self) -> int:
        """Devices of the replica."""
        return self.plan.options.devices_per_replica

    @property
    def log_sigma(self) -> float:
        """Spread of what all step times have in common."""
        return ServedRun(self.plan.run).common_log_sigma(self.plan.steps)

    @property
    def has_energy(self) -> bool:
        """Whether its energy is known."""
        return self.idle_w is not None

    def dynamic_j_at(self, rate_per_s: float) -> float:  # noqa: ARG002
        """Energy of a request on top of idle power; that at half the bound, at any load."""
        return self.dynamic_j

    def bound_per_s(self, factor: float) -> float:
        """Full batches that never wait."""
        return self.full_per_s / factor

    def carried_per_s(self, factor: float, generator: np.random.Generator) -> float:
        """The largest rate at which 99 % of the requests keep all limits; 0 where none does."""
        seed = int(generator.integers(2**31))
        high = self.bound_per_s(factor)
        low = high * _USUAL
        if not self._is_good(low, factor, seed):
            low, high = high * _LEAST, low
            if not self._is_good(low, factor, seed):
                return 0.0
        while high / low > _TOLERANCE:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._is_good(middle, factor, seed) else (low, middle)
        return low

    def _is_good(self, rate_per_s: float, factor: float, seed: int) -> bool:
        return self._late(rate_per_s, factor, seed) <= 1 - _QUANTILE

    def late_share(
        self,
        rate_per_s: float,
        planned: float,  # noqa: ARG002
        factor: float,
        generator: np.random.Generator,
    ) -> float:
        """Share of the requests that miss a limit; batches are the engine's own."""
        return self._late(rate_per_s, factor, int(generator.integers(2**31)))

    def _late(self, rate_per_s: float, factor: float, seed: int) -> float:
        result = self._simulated(rate_per_s, factor, seed)
        return 1.0 if result.saturated else 1.0 - (result.slo_attainment_fraction or 0.0)

    def _simulated(self, rate_per_s: float, factor: float, seed: int) -> ServingResult:
        streams = RandomStreams(seed)
        load = replace(self.load, rate_per_s=rate_per_s, requests=_REQUESTS)
        plan = replace(self.plan, steps=ScaledSteps(self.plan.steps, factor, factor))
        return simulate_plan(plan, load.columns(streams), DevicePrice(None, None), streams)


def service_answer(service: Service, device: str) -> ServiceAnswer | str:
    """How a device answers a service; the reason where it cannot.

    Args:
        service: What is served.
        device: Name of a device or slice.
    """
    load = _tokens(service)
    if load is None:
        return device_answer(service, device)
    try:
        return TokenAnswer.of(service, device, load)
    except InputError as error:
        return str(error)


def _tokens(service: Service) -> Arrivals | None:
    """Lengths of requests; None of a model that answers samples."""
    model = workload_catalog.workload(service.model)
    length = service.run.get("output_len", model.output_len)
    prompt, output = service.prompt, service.output
    if not model.autoregressive or (output is None and not length):
        return None
    usual = service.run.get("seq_len", model.default.seq_len)
    return Arrivals(rate_per_s=1.0, prompt=prompt or str(usual), output=output or str(length))
