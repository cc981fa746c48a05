"""The most load that replicas serve well, and the fewest replicas that serve a load well.

A bracket is halved with simulations of the same random draws (common random numbers; Law,
Simulation Modeling and Analysis, chapter 11), from the bound that full batches set. What is found
comes with the share of requests that met the targets and its Wilson interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.planning.options import PriceChoice, RunOptions, options_and_price
from accelsim.planning.price import device_price
from accelsim.planning.serving.capacity import LoadShape, full_batch
from accelsim.planning.serving.options import ServingOptions
from accelsim.planning.serving.plan import ReplicaPlan, replica_plan
from accelsim.planning.serving.result import ServingResult
from accelsim.planning.serving.serve import described, simulate_plan
from accelsim.simulation.randomness import RandomStreams
from accelsim.simulation.serving.arrivals import Arrivals

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

__all__ = ["QUESTIONS", "Found", "find"]

#: Where halving a bracket of rates ends.
_TOLERANCE: Final = 0.01
_MOST_REPLICAS: Final = 4096
_Z95: Final = 1.959963984540054
QUESTIONS: Final = ("max-rate", "min-replicas")


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a search.

    Attributes:
        question: "max-rate" or "min-replicas".
        value: Requests per second, or replicas.
        bound: What no load above, or no fewer replicas, can do: from full batches alone.
        attainment_low: Lower end of the 95 % interval of the share that meets the targets.
        attainment_high: Upper end.
        simulations: Simulations made.
        result: The simulation of the answer.
    """

    question: str
    value: float
    bound: float
    attainment_low: float
    attainment_high: float
    simulations: int
    result: ServingResult

    @property
    def sentence(self) -> str:
        """The answer in words."""
        unit = "requests/s at most" if self.question == "max-rate" else "replicas at least"
        limit = "above" if self.question == "max-rate" else "below"
        asked = self.result.inputs["options"]["slo"]["attainment_fraction"]
        return (
            f"{self.value:.4g} {unit} for {100 * asked:g} % of the requests to meet the targets; "
            f"{100 * self.attainment_low:.1f} to {100 * self.attainment_high:.1f} % do (95 % "
            f"interval, {self.result.requests:,} requests); none {limit} {self.bound:.4g}"
        )


def find(
    question: str,
    workload: str | Workload,
    device: str | DeviceProfile,
    arrivals: Arrivals,
    options: ServingOptions,
    run: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    seed: int = 0,
    **keywords: Any,
) -> Found:
    """Find the most load or the fewest replicas under the targets of `options`.

    Args:
        question: "max-rate", or "min-replicas" for the rate of `arrivals`.
        workload: The model.
        device: Every rank's device.
        arrivals: The load; its rate is where "max-rate" starts.
        options: How the model is served, with targets.
        run: Precision and formats.
        price: Which price.
        seed: Of the random numbers.
        keywords: Fields of `RunOptions` and `PriceChoice`.

    Raises:
        InvalidValueError: If there are no targets or no rate (a burst has none), or nothing
            meets the targets.
    """
    if question not in QUESTIONS:
        raise InvalidValueError("find", question, "one of " + ", ".join(QUESTIONS))
    if options.slo.is_empty:
        remedy = "Add --slo-ttft, --slo-tpot or --slo-e2e."
        raise InvalidValueError("slo", None, "at least one target", remedy)
    if arrivals.rate_per_s is None:
        raise InvalidValueError("rate", None, "a rate", "A closed loop has none: use --rate.")
    if arrivals.process == "burst":
        raise InvalidValueError("process", "burst", "arrivals that have a rate")
    chosen, paid = options_and_price(run, price, keywords)
    columns = arrivals.columns(RandomStreams(seed))
    longest = int((columns.prompt_tokens + columns.output_tokens).max())
    plan = replica_plan(workload, device, chosen, options, max_context=longest)
    cost = device_price(plan.run.device, paid)
    served = full_batch(plan, LoadShape.of(columns)).requests_per_s
    search = _Search(plan, arrivals, cost, seed)
    if question == "max-rate":
        return search.max_rate(served * options.replicas)
    return search.min_replicas(arrivals.rate_per_s, served)


class _Search:
    """Simulations of one plan at rates and replicas; each once."""

    def __init__(self, plan: ReplicaPlan, arrivals: Arrivals, price: Any, seed: int) -> None:
        self.plan, self.arrivals, self.price, self.seed = plan, arrivals, price, seed
        self.count = 0

    def simulate(self, rate_per_s: float, replicas: int) -> ServingResult:
        self.count += 1
        load = replace(self.arrivals, rate_per_s=rate_per_s)
        options = replace(self.plan.options, replicas=replicas)
        streams = RandomStreams(self.seed)
        plan = replace(self.plan, options=options)
        columns = load.columns(streams)
        return simulate_plan(plan, columns, self.price, streams=streams, load=described(load))

    def is_good(self, result: ServingResult) -> bool:
        share = result.slo_attainment_fraction or 0.0
        return share >= self.plan.options.slo.attainment_fraction and not result.saturated

    def max_rate(self, bound: float) -> Found:
        """Halve the rates between one that is served well and the bound."""
        replicas = self.plan.options.replicas
        low, high = bound / 64, bound
        best = self.simulate(low, replicas)
        if not self.is_good(best):
            self._refuse(best)
        while high / low > 1 + _TOLERANCE:
            middle = math.sqrt(low * high)
            result = self.simulate(middle, replicas)
            if self.is_good(result):
                low, best = middle, result
            else:
                high = middle
        return self._found("max-rate", low, bound, best)

    def min_replicas(self, rate_per_s: float, served_per_s: float) -> Found:
        """Double the replicas from the bound until they suffice, then halve the bracket."""
        bound = max(1, math.ceil(rate_per_s / served_per_s))
        low, high = bound - 1, bound
        while not self.is_good(best := self.simulate(rate_per_s, high)):
            if high >= _MOST_REPLICAS:
                self._refuse(best)
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            result = self.simulate(rate_per_s, middle)
            if self.is_good(result):
                high, best = middle, result
            else:
                low = middle
        return self._found("min-replicas", high, bound, best)

    def _refuse(self, result: ServingResult) -> None:
        share = 100 * (result.slo_attainment_fraction or 0.0)
        first, further = result.ttft_s["p50"], result.tpot_s["p50"]
        times = ", ".join(
            f"{name} {value:.3g} s" for name, value in (("TTFT", first), ("TPOT", further)) if value
        )
        allowed = f"targets that can be met: with little load {share:.1f} % do; medians {times}"
        raise InvalidValueError("slo", self.plan.options.slo, allowed, "Choose a faster device.")

    def _found(self, question: str, value: float, bound: float, best: ServingResult) -> Found:
        low, high = _wilson(best.slo_attainment_fraction or 0.0, best.requests)
        return Found(question, value, bound, low, high, self.count, best)


def _wilson(share: float, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z2 = _Z95**2 / count
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z95 / (1 + z2) * np.sqrt(share * (1 - share) / count + z2 / (4 * count))
    return float(middle - half), float(middle + half)
