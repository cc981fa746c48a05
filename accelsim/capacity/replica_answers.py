"""How replicas of one layout on one device answer a service.

What a model answers in samples goes through batches of one device (`batch_queue`); what generates
tokens is in `token_service`.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from accelsim import catalog
from accelsim.capacity.batch_queue import BatchTimes, largest_rate_per_s, late_share
from accelsim.capacity.scenario import BatchJob, Service
from accelsim.confidence.quantiles import Z90
from accelsim.cost.idle import idle_power_w
from accelsim.errors import InputError
from accelsim.estimation.estimate_many import estimate_many
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.simulation.randomness import RandomStreams


@frozen
class ReplicaLoad:
    """What replicas are asked to carry.

    Attributes:
        rate_per_s: Requests per second of the whole service.
        z: Quantile of the model's error that is planned for, in its standard deviations.
    """

    rate_per_s: float
    z: float = 0.0

    def factor(self, log_sigma: float) -> float:
        """Time over the predicted, of an error of such a spread."""
        return math.exp(self.z * log_sigma)


class ServiceAnswer(Protocol):
    """How replicas of one layout on one device answer one service."""

    @property
    def about(self) -> Values:
        """The layout, engine and formats of a replica."""

    @property
    def ranks(self) -> int:
        """Devices of a replica."""

    @property
    def log_sigma(self) -> float:
        """Spread of ln(true / predicted) that all times have in common."""

    @property
    def alone_s(self) -> float:
        """Time of a request alone."""

    @property
    def idle_w(self) -> float | None:
        """Power of a replica without load; None where unknown."""

    def dynamic_j(self, load: ReplicaLoad) -> float:
        """Energy of a request on top of idle power; NaN where unknown."""

    def fewest(self, load: ReplicaLoad) -> int | None:
        """Lower bound of the replicas; None where no number of them keeps the limits."""

    def needed(self, load: ReplicaLoad) -> int | None:
        """Replicas that keep the limits when simulated; None where no number does."""

    def narrow(self, load: ReplicaLoad, most: float) -> None:
        """Come nearer to that, where it may be no more than so many."""

    def is_simulated(self, load: ReplicaLoad) -> bool:
        """Whether that is known by now."""

    def holds(self, replicas: int, load: ReplicaLoad, planned: ReplicaLoad) -> bool:
        """Whether replicas that were chosen for `planned` keep the limits."""

    @property
    def mean_tokens(self) -> tuple[float, float] | None:
        """Mean tokens of prompts and outputs; None where nothing is generated."""

    def request_times(self, load: ReplicaLoad) -> Values:
        """Times of requests at p99 by name, as far as the fleet was simulated."""

    def shortfall(self) -> tuple[str, float] | None:
        """The limit that a request alone misses, by its field, and its time; None where none."""


@frozen(eq=False)
class SampleAnswer:
    """How one device answers samples in batches, each replica with arrivals of its own.

    Attributes:
        times: Time of its batches, median.
        log_sigma: Spread of ln(true / predicted).
        idle_w: Power without load; None where unknown.
        energy_j: Energy of a sample on top, by batch size; NaN where unknown.
        limit_s: Latency that answers keep.
        share: How many of them.
        about: Layout and formats.
        seed: Of the arrivals.
        known: Rates found by simulation, by the factor on all times.
    """

    times: BatchTimes
    log_sigma: float
    idle_w: float | None
    energy_j: tuple[float, ...]
    limit_s: float = math.inf
    share: float = 0.99
    about: Values = field(default_factory=dict)
    seed: int = 0
    known: dict[float, float] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """A replica is a device."""
        return 1

    @property
    def alone_s(self) -> float:
        """Time of a batch of one."""
        return self.times.time_s[0]

    def fewest(self, load: ReplicaLoad) -> int | None:
        """Back to back, in batches that can be waited for once; see `ServiceAnswer`."""
        factor = load.factor(self.log_sigma)
        batch = self.times.within(self.limit_s / factor)
        return _count(load.rate_per_s, self.times.saturated_rate_per_s(batch) / factor)

    def is_simulated(self, load: ReplicaLoad) -> bool:
        """See `ServiceAnswer`."""
        return load.factor(self.log_sigma) in self.known

    def narrow(self, load: ReplicaLoad, most: float) -> None:  # noqa: ARG002
        """All at once; see `ServiceAnswer`."""
        self.needed(load)

    def needed(self, load: ReplicaLoad) -> int | None:
        """Of a queue of greedy batches; see `ServiceAnswer`."""
        factor = load.factor(self.log_sigma)
        if factor not in self.known:
            limit = self.limit_s / factor
            queue = self.times, limit, self.times.within(limit), self.share
            self.known[factor] = largest_rate_per_s(*queue, self._arrivals()) / factor
        return _count(load.rate_per_s, self.known[factor])

    def holds(self, replicas: int, load: ReplicaLoad, planned: ReplicaLoad) -> bool:
        """Batches are as large as was planned; see `ServiceAnswer`."""
        factor = load.factor(self.log_sigma)
        batch = self.times.within(self.limit_s / planned.factor(self.log_sigma))
        rate = load.rate_per_s / replicas * factor
        late = late_share(self.times, rate, self.limit_s / factor, batch, self._arrivals())
        return late <= 1 - self.share + 1e-12

    def _arrivals(self) -> np.random.Generator:
        return RandomStreams(self.seed).stream("arrivals")

    def dynamic_j(self, load: ReplicaLoad) -> float:
        """That of the smallest batch that carries the load of a replica; see `ServiceAnswer`."""
        if self.idle_w is None:
            return math.nan
        rate = load.rate_per_s / max(self.needed(load) or 1, 1)
        return self.energy_at_j(rate)

    def energy_at_j(self, rate_per_s: float) -> float:
        """Energy of a sample on top of idle power, at a rate of one device."""
        pairs = zip(self.times.sizes, self.times.time_s, strict=True)
        last = len(self.energy_j) - 1
        index = next((i for i, (b, t) in enumerate(pairs) if b / t >= rate_per_s), last)
        return self.energy_j[index]

    @property
    def mean_tokens(self) -> None:
        """Samples have none; see `ServiceAnswer`."""

    def request_times(self, load: ReplicaLoad) -> Values:  # noqa: ARG002
        """None are kept; see `ServiceAnswer`."""
        return {}

    def shortfall(self) -> tuple[str, float] | None:
        """A batch must be waited for and answered; see `ServiceAnswer`."""
        return None if 2 * self.alone_s <= self.limit_s else ("latency_s", 2 * self.alone_s)


def _count(rate_per_s: float, each_per_s: float) -> int | None:
    """Replicas for a rate."""
    return max(1, math.ceil(rate_per_s / each_per_s * (1 - 1e-9))) if each_per_s else None


def sample_answer(work: Service | BatchJob, device: str, seed: int = 0) -> SampleAnswer | str:
    """How a device answers samples; the reason where it cannot.

    Args:
        work: What is answered.
        device: Name of a device or slice.
        seed: Of the arrivals.
    """
    powers = range(0, work.max_batch.bit_length(), 2)
    sizes = sorted({*(1 << power for power in powers), work.max_batch})
    try:
        columns = estimate_many(work.model, device, shapes={"batch": sizes}, **work.run)
    except InputError as error:
        return str(error)
    fits = np.isfinite(columns["latency_s"])
    if not fits[0]:
        return str(columns["reason"][0])
    fitting: dict[str, Any] = {name: columns[name][fits] for name in columns}
    latency = np.maximum.accumulate(fitting["latency_s"])
    spread = np.log(fitting["latency_high_s"] / fitting["latency_s"]).max() / Z90
    idle_w = idle_power_w(catalog.device(device))
    idle_j = (math.nan if idle_w is None else idle_w) / fitting["throughput_per_s"]
    energy = np.maximum(fitting["energy_per_sample_j"] - idle_j, 0.0)
    about: Document = {"max_batch": int(fitting["batch"][-1]), "tp": 1}
    if "precision" in work.run:
        about["precision"] = work.run["precision"]
    limit, share = math.inf, 1.0
    if isinstance(work, Service):
        limit, share = work.targets.e2e_s or math.inf, work.targets.attainment_fraction
    return SampleAnswer(
        BatchTimes(tuple(fitting["batch"].tolist()), tuple(latency.tolist())),
        float(spread),
        None if np.isnan(energy).any() else idle_w,
        tuple(energy.tolist()),
        limit,
        share,
        about,
        seed,
    )
