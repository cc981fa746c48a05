"""Jobs with deadlines: the ways each can be done, and how long they take.

A way is an offer and a number of its instances. Training goes through `accelsim.train` with its
checkpoints; samples to be answered go through batches at their best size. Failures and preemptions
come as a Poisson process of all instances of a way; each costs the work since the last checkpoint
and a restart, in the mean what Daly's formula (Future Generation Computer Systems 22(3), 2006) adds
per failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from accelsim.capacity.candidates import Candidate, device_answer
from accelsim.capacity.scenario import BatchJob, Reliability, Scenario, TrainingJob
from accelsim.confidence.quantiles import Z90
from accelsim.economics.bill import billed_usd
from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.errors import InputError
from accelsim.frozen import frozen
from accelsim.training.estimate import train
from accelsim.training.length import RunLength


@frozen
class JobWay:
    """A job on so many instances of an offer.

    Attributes:
        job: Its place among the scenario's jobs.
        column: Place of the offer.
        count: Instances.
        work_s: Time without failures, checkpoints included, median.
        log_sigma: Spread of ln(true / predicted).
        energy_j: Energy of its devices; None where unknown.
        mtbf_s: Mean time between failures of any of its instances; None for none.
        lost_s: Time that a failure costs.
    """

    job: int
    column: int
    count: int
    work_s: float
    log_sigma: float
    energy_j: float | None
    mtbf_s: float | None = None
    lost_s: float = 0.0

    @property
    def time_s(self) -> float:
        """Expected time, failures included."""
        failures = 0.0 if self.mtbf_s is None else self.work_s / self.mtbf_s
        return self.work_s + failures * self.lost_s

    def at(self, size: float) -> JobWay:
        """The same with `size` times the work."""
        energy = None if self.energy_j is None else self.energy_j * size
        return replace(self, work_s=self.work_s * size, energy_j=energy)

    def time_at_s(self, probability: float, error: float = 1.0) -> float:
        """Time it takes with a probability at most; `error` times the model's spread."""
        return self.time_s * math.exp(NormalDist().inv_cdf(probability) * self.log_sigma * error)

    def drawn_s(self, model_error: float, generator: np.random.Generator) -> float:
        """A time.

        Args:
            model_error: Standard normal number, the same for all that the device does.
            generator: Draws the failures.
        """
        work = self.work_s * math.exp(self.log_sigma * model_error)
        failures = 0 if self.mtbf_s is None else generator.poisson(work / self.mtbf_s)
        return work + failures * self.lost_s

    def cost_usd(self, offer: Candidate, runs_per_month: float) -> float:
        """Price of one run: by the second, or its share of a commitment, which is paid for all of
        the month.
        """
        hourly = offer.quote.instance_usd_per_hour
        if offer.quote.kind.startswith("committed"):
            return self.count * hourly * HOURS_PER_YEAR / 12 / runs_per_month
        least_s = offer.quote.offer.minimum_billing_s or 0.0
        return self.count * billed_usd(hourly, self.time_s, minimum_s=least_s)


def ways(scenario: Scenario, offers: Sequence[Candidate]) -> tuple[list[JobWay], list[str]]:
    """Ways of all jobs, and what was left out for which reason.

    Args:
        scenario: The question.
        offers: What may be rented.
    """
    found: list[JobWay] = []
    left_out: dict[str, None] = {}
    for place, job in enumerate(scenario.jobs):
        known: dict[tuple[str, int, float | None], JobWay | str] = {}
        for column, offer, count in _choices(scenario, offers):
            mtbf = scenario.reliability.mtbf_s(offer.quote.kind)
            whole = None if mtbf is None else mtbf / count
            key = (offer.device, offer.device_count * count, whole)
            if key not in known:
                known[key] = _way(job, key, scenario.reliability)
            way = known[key]
            if isinstance(way, str):
                left_out[f"{offer.device}, {job.name}: {way}"] = None
            else:
                found.append(replace(way, job=place, column=column, count=count))
    return found, list(left_out)


def _choices(
    scenario: Scenario, offers: Sequence[Candidate]
) -> Iterator[tuple[int, Candidate, int]]:
    for column, offer in enumerate(offers):
        for count in scenario.candidates.counts:
            yield column, offer, count


def _way(
    job: TrainingJob | BatchJob, key: tuple[str, int, float | None], reliability: Reliability
) -> JobWay | str:
    """A job on devices; why it cannot be done there."""
    try:
        if isinstance(job, BatchJob):
            return _batch_way(job, *key, reliability.restart_s)
        return _training_way(job, *key, reliability.restart_s)
    except InputError as error:
        return str(error)


def _batch_way(
    job: BatchJob, device: str, count: int, mtbf_s: float | None, restart_s: float
) -> JobWay | str:
    found = device_answer(job, device)
    if isinstance(found, str):
        return found
    rate = found.times.saturated_rate_per_s(found.times.sizes[-1])
    work = job.samples / (rate * count)
    energy = None
    if found.has_energy and found.idle_w is not None:
        energy = job.samples * found.dynamic_j_at(rate) + found.idle_w * count * work
    return JobWay(0, 0, 1, work, found.log_sigma, energy, mtbf_s, restart_s)


def _training_way(
    job: TrainingJob, device: str, count: int, mtbf_s: float | None, restart_s: float
) -> JobWay:
    length = RunLength(
        samples=job.samples,
        tokens=job.tokens,
        preemption_mtbf_s=mtbf_s,
        checkpoint_s=job.checkpoint_s,
        restart_s=restart_s,
    )
    result = train(
        job.model,
        device=device,
        gpus=count,
        plan=job.plan,
        global_batch=job.global_batch,
        length=length,
        **job.run,
    )
    time_s, high_s = result.time_to_train_s or 0.0, result.time_to_train_high_s or 0.0
    failures = result.expected_failures or 0.0
    work_s = time_s * (result.goodput_fraction or 1.0) if failures else time_s
    lost_s = (time_s - work_s) / failures if failures else 0.0
    sigma = math.log(high_s / time_s) / Z90
    mtbf = work_s / failures if failures else None
    return JobWay(0, 0, 1, work_s, sigma, result.total_energy_j, mtbf, lost_s)
