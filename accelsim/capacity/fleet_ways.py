"""Ways to serve each service and to do each job: whole instances, and what they use in a month.

The replicas of a service are alike and stay in one region of one provider; a job runs on instances
of one kind. How many replicas or which plan is what a search finds, or a bound of it until then.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import product
from typing import TypeVar

import numpy as np

from accelsim.capacity.candidates import Candidate
from accelsim.capacity.fleet import FleetProblem
from accelsim.capacity.jobs import JobRun, TrainingPlace, alone, batch_on, batch_rate
from accelsim.capacity.replica_answers import ReplicaLoad, SampleAnswer, ServiceAnswer
from accelsim.capacity.scenario import BatchJob, Scenario, TrainingJob
from accelsim.capacity.spares import spared_cover
from accelsim.capacity.token_service import service_answers
from accelsim.economics.bill import billed_usd
from accelsim.economics.offer import Quote
from accelsim.economics.result import HOURS_PER_MONTH, JOULES_PER_KWH, SECONDS_PER_MONTH
from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.training.estimate import TrainingEstimate
from accelsim.workloads.graph import FloatArray

#: Share of a price that is rounding.
_ROUNDING = 1e-9
#: Share of the objective that price decides among fleets of equal latency or time.
_TIE = 1e-3
_T = TypeVar("_T")
_Use = Callable[[], FloatArray]


@frozen
class Question:
    """What a fleet is looked for, beside the scenario.

    Attributes:
        service_z: Quantile of the model's error that limits of services are kept at.
        job_z: The same of deadlines.
        load: Of each service (or of all), and of jobs where it is one number, over the scenario's.
        without: Devices, and hardware of one's own, left out.
        only: The one that is looked at; any where empty.
        goal: Objective in place of the scenario's.
        redundancy: Instances that may be down, in place of the scenario's.
        is_billed: Whether jobs are billed, and use energy, as long as they take at their quantile.
    """

    service_z: float = 0.0
    job_z: float = 0.0
    load: float | tuple[float, ...] = 1.0
    without: tuple[str, ...] = ()
    only: str = ""
    goal: str = ""
    redundancy: int | None = None
    is_billed: bool = False

    def load_of(self, service: int) -> float:
        """Load of a service over the scenario's."""
        return self.load if isinstance(self.load, float) else self.load[service]

    @property
    def work(self) -> float:
        """Work of a job over the scenario's."""
        return self.load if isinstance(self.load, float) else 1.0

    def takes(self, choice: str) -> bool:
        """Whether a device, or hardware of one's own, may be taken."""
        return choice not in self.without and self.only in {"", choice}


@frozen(eq=False)
class ServedBy:
    """How a service is carried.

    Attributes:
        answer: How one replica answers.
        load: What all replicas carry.
        replicas: How many run.
        mean_fraction: Load of the mean hour over the peak's.
    """

    answer: ServiceAnswer
    load: ReplicaLoad
    replicas: int
    mean_fraction: float

    @property
    def needed_replicas(self) -> int:
        """Replicas that keep the limits; 1 where no number does."""
        return self.answer.needed(self.load) or 1

    @property
    def mean_power_w(self) -> float | None:
        """Power of all replicas in the mean hour; None where unknown."""
        idle_w = self.answer.idle_w
        if idle_w is None or math.isnan(dynamic_j := self.answer.dynamic_j(self.load)):
            return None
        return self.replicas * idle_w + dynamic_j * self.load.rate_per_s * self.mean_fraction


@frozen(eq=False)
class Way:
    """One way to serve a service or to do a job.

    Attributes:
        task: Its index among services, then jobs.
        instances: Offer and number of instances, each.
        devices: Devices in use.
        usd_per_month: Rent.
        is_final: Whether it is simulated, and no bound.
        served: Of a service: how it is carried.
        run: Of a job: how it runs.
        runs_per_month: Of a job: how often.
        training: Of a training job: what is searched.
    """

    task: int
    instances: tuple[tuple[int, int], ...]
    devices: int
    usd_per_month: float
    is_final: bool
    served: ServedBy | None = None
    run: JobRun | None = None
    runs_per_month: float = 1.0
    training: TrainingPlace | None = None

    @property
    def time_s(self) -> float:
        """Time of a request alone, or of a job."""
        if self.served is not None:
            return self.served.answer.alone_s
        return 0.0 if self.run is None else self.run.time_s

    @property
    def about(self) -> Values:
        """Layout and engine of a replica, or plan and trainer of a job."""
        if self.served is not None:
            return self.served.answer.about
        return {} if self.run is None else self.run.about

    @property
    def log_sigma(self) -> float:
        """Spread of its times."""
        if self.served is not None:
            return self.served.answer.log_sigma
        return 0.0 if self.run is None else self.run.log_sigma

    @property
    def energy_j_per_month(self) -> float | None:
        """Energy of the devices in use; None where unknown."""
        if self.served is not None:
            power_w = self.served.mean_power_w
            return None if power_w is None else power_w * SECONDS_PER_MONTH
        run_j = None if self.run is None else self.run.energy_j
        return None if run_j is None else run_j * self.runs_per_month

    @property
    def instance_count(self) -> int:
        """Instances in all."""
        return sum(count for _, count in self.instances)


@frozen(eq=False)
class WayMaker:
    """Makes the ways of a scenario.

    Attributes:
        scenario: The question.
        offers: What may be rented.
        answers: Layouts of each service, by its index and the device.
        trained: Each training job alone on one device, by its index among the jobs.
        batches: How one device answers the samples of each batch job, and how many a second.
        searched: Training jobs on numbers of devices.
        covers: Instances that hold so many replicas.
        reasons: Why a device cannot, by its name and that of the service or job.
    """

    scenario: Scenario
    offers: Sequence[Candidate]
    answers: dict[tuple[int, str], list[ServiceAnswer]] = field(default_factory=dict)
    trained: dict[tuple[int, str], TrainingEstimate] = field(default_factory=dict)
    batches: dict[tuple[int, str], tuple[SampleAnswer, float]] = field(default_factory=dict)
    searched: dict[tuple[int, str, int, float | None], TrainingPlace] = field(default_factory=dict)
    covers: dict[tuple[object, ...], list[tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def ask(self, device: str) -> None:
        """Ask a device about all services and jobs, and keep why it cannot."""
        scenario = self.scenario
        for index, service in enumerate(scenario.services):
            answers = service_answers(service, device, scenario.seed)
            self._keep(self.answers, answers, (index, device), service.name)
        for index, job in enumerate(scenario.jobs):
            if isinstance(job, BatchJob):
                self._keep(self.batches, batch_rate(job, device), (index, device), job.name)
            else:
                self._keep(self.trained, alone(job, device), (index, device), job.name)

    def _keep(
        self, answers: dict[tuple[int, str], _T], answer: _T | str, key: tuple[int, str], name: str
    ) -> None:
        """Keep an answer, or why there is none."""
        if isinstance(answer, str):
            self.reasons[key[1], name] = answer
        else:
            answers[key] = answer

    def need_energy(self) -> None:
        """Leave out answers of unknown energy, where it decides."""
        for (index, device), answers in list(self.answers.items()):
            known = [answer for answer in answers if answer.idle_w is not None]
            name = self.scenario.services[index].name
            self._keep(self.answers, known or "its energy is unknown", (index, device), name)
            if not known:
                del self.answers[index, device]

    def offer(self, way: Way) -> Candidate:
        """The first of a way's offers; the others are of its device, provider and region."""
        return self.offers[way.instances[0][0]]

    def ways(self, question: Question) -> Iterator[Way]:
        """All ways, of services first."""
        sites: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
        for column, candidate in enumerate(self.offers):
            if question.takes(candidate.choice):
                offer, kind = candidate.quote.offer, candidate.quote.kind
                sites[candidate.device][offer.provider, offer.region, kind].append(column)
        for (index, device), answers in self.answers.items():
            for answer, columns in product(answers, sites.get(device, {}).values()):
                yield from self._service_ways(index, answer, columns, question)
        all_columns = [
            c for by_site in sites.values() for columns in by_site.values() for c in columns
        ]
        for (index, job), column in product(enumerate(self.scenario.jobs), all_columns):
            yield from self._job_ways(index, job, column, question)

    def _service_ways(
        self, index: int, answer: ServiceAnswer, columns: Sequence[int], question: Question
    ) -> Iterator[Way]:
        service = self.scenario.services[index]
        load = ReplicaLoad(service.peak_per_s * question.load_of(index), question.service_z)
        is_final = answer.is_simulated(load)
        replicas = answer.needed(load) if is_final else answer.fewest(load)
        if replicas is None:
            return
        share = service.targets.attainment_fraction
        for cover in self._covers(columns, replicas, answer.ranks, share, question):
            capacity = sum(n * (self.offers[c].device_count // answer.ranks) for c, n in cover)
            is_spare = self._spares(question) or self._up_fraction(columns[0]) < 1
            running = capacity if is_spare else replicas
            usd = sum(n * self.offers[c].quote.instance_usd_per_hour for c, n in cover)
            yield Way(
                index,
                cover,
                running * answer.ranks,
                usd * HOURS_PER_MONTH,
                is_final,
                served=ServedBy(answer, load, running, service.mean_fraction),
            )

    def _spares(self, question: Question) -> int:
        redundancy = question.redundancy
        return self.scenario.constraints.redundancy if redundancy is None else redundancy

    def _up_fraction(self, column: int) -> float:
        return self.scenario.reliability.up_fraction(self.offers[column].quote.kind)

    def _covers(
        self, columns: Sequence[int], replicas: int, ranks: int, share: float, question: Question
    ) -> list[tuple[tuple[int, int], ...]]:
        """Instances of a region that hold replicas."""
        spare = self._spares(question)
        key = (tuple(columns), replicas, ranks, share, spare)
        if key not in self.covers:
            up = self._up_fraction(columns[0])
            covers = [
                spared_cover(capacities, weights, replicas, spare, (up, share))
                for capacities, weights in self._cover_goals(columns, ranks)
            ]
            self.covers[key] = [
                tuple((column, n) for column, n in zip(columns, counts, strict=True) if n)
                for counts in dict.fromkeys(filter(None, covers))
            ]
        return self.covers[key]

    def _cover_goals(
        self, columns: Sequence[int], ranks: int
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Replicas that an instance of each offer holds, and what is least of the instances: the
        price; where instances are limited their number, too, and the price of each kind alone.
        """
        offers = [self.offers[column] for column in columns]
        capacities = [offer.device_count // ranks for offer in offers]
        usd = [offer.quote.instance_usd_per_hour for offer in offers]
        yield capacities, usd
        limits = self.scenario.constraints
        if limits.instance_count is not None or limits.quota:
            yield capacities, [1.0 + price / sum(usd) for price in usd]
            for kind, capacity in enumerate(capacities):
                yield [0] * kind + [capacity] + [0] * (len(columns) - kind - 1), usd

    def _job_ways(
        self, index: int, job: TrainingJob | BatchJob, column: int, question: Question
    ) -> Iterator[Way]:
        offer = self.offers[column]
        mtbf = self.scenario.reliability.mtbf_s(offer.quote.kind)
        for count in self.scenario.candidates.counts:
            fleet_mtbf = None if mtbf is None else mtbf / count
            run, searched = self._run(index, job, offer.device_count * count, (offer, fleet_mtbf))
            if run is None:
                continue
            run = run.at(question.work)
            if run.time_at_s(question.job_z) > job.deadline_s:
                continue
            if question.is_billed and not run.is_bound:
                run = run.at(math.exp(question.job_z * run.log_sigma))
            yield self._job_way(index, column, count, run, searched)

    def any_time(self, index: int, question: Question) -> Iterator[Way]:
        """Ways of a job, whatever its deadline."""
        job = self.scenario.jobs[index].model_copy(update={"deadline_s": math.inf})
        for column in range(len(self.offers)):
            yield from self._job_ways(index, job, column, question)

    def shortfall(self, service: int, device: str) -> tuple[str, float] | None:
        """The limit of a service that requests alone miss on a device in every layout, by its
        field, and the least time; None where one keeps all.
        """
        misses = [answer.shortfall() for answer in self.answers.get((service, device), ())]
        missed = [miss for miss in misses if miss is not None]
        return min(missed, key=lambda miss: miss[1]) if missed and missed == misses else None

    def sigma_of(self, device: str) -> float:
        """Largest spread of the times of a device's answers and searched runs."""
        of_answers = [
            answer.log_sigma
            for (_, name), answers in self.answers.items()
            for answer in answers
            if name == device
        ]
        runs = [searched.known for key, searched in self.searched.items() if key[1] == device]
        of_runs = [run.log_sigma for run in runs if isinstance(run, JobRun)]
        return max((*of_answers, *of_runs), default=0.0)

    def _run(
        self,
        index: int,
        job: TrainingJob | BatchJob,
        devices: int,
        where: tuple[Candidate, float | None],
    ) -> tuple[JobRun | None, TrainingPlace | None]:
        """A job on so many devices as far as it is known, and what may be searched."""
        (offer, mtbf), restart_s = where, self.scenario.reliability.restart_s
        key = index, offer.device
        if isinstance(job, BatchJob):
            answer = self.batches.get(key)
            return None if answer is None else batch_on(job, answer, devices, mtbf, restart_s), None
        if key not in self.trained:
            return None, None
        search = (*key, devices, mtbf)
        if search not in self.searched:
            single = self.trained[key]
            self.searched[search] = TrainingPlace(job, key[1], devices, mtbf, restart_s, single)
        searched = self.searched[search]
        if isinstance(searched.known, str):
            self.reasons[offer.device, job.name] = searched.known
            return None, None
        return searched.known, searched

    def _job_way(
        self, index: int, column: int, count: int, run: JobRun, searched: TrainingPlace | None
    ) -> Way:
        offer, runs_per_month = self.offers[column], self.scenario.jobs[index].runs_per_month
        usd = count * run_usd(offer.quote, run.time_s, runs_per_month)
        used = int(run.about.get("devices", offer.device_count * count))
        return Way(
            len(self.scenario.services) + index,
            ((column, count),),
            used,
            usd * runs_per_month,
            not run.is_bound,
            run=run,
            runs_per_month=runs_per_month,
            training=searched,
        )

    def refine(self, way: Way, usd_per_month: float = math.inf) -> None:
        """Simulate replicas of a service once more, or search a job's plans.

        Args:
            way: What is chosen by its bound.
            usd_per_month: What another way costs: numbers of replicas as dear are of no use.
        """
        if way.served is not None:
            answer, device = way.served.answer, self.offer(way).device
            replica_usd = min(
                offer.quote.instance_usd_per_hour / (offer.device_count // answer.ranks)
                for offer in self.offers
                if offer.device == device and offer.device_count >= answer.ranks
            )
            below = (1.0 - _ROUNDING) * usd_per_month
            answer.narrow(way.served.load, below / (replica_usd * HOURS_PER_MONTH))
        elif way.training is not None:
            _ = way.training.run

    def problem(self, ways: Sequence[Way], question: Question) -> FleetProblem:
        """What ways use, as a programme."""
        tasks = len(self.scenario.services) + len(self.scenario.jobs)
        limits, uses = {}, {}
        for name, (use, limit) in self._limited(ways).items():
            if limit is not None:
                uses[name], limits[name] = use(), float(limit)
        objective = self._objective(ways, question.goal or self.scenario.objective)
        task = np.array([way.task for way in ways], dtype=np.int64)
        return FleetProblem(task, tasks, objective, uses, limits)

    def _objective(self, ways: Sequence[Way], goal: str) -> FloatArray:
        usd = np.array([way.usd_per_month for way in ways])
        if goal == "cost":
            return usd
        if goal == "energy":
            return np.array([way.energy_j_per_month or 0.0 for way in ways])
        if goal == "carbon":
            return self.carbon_kgco2e(ways)
        services = len(self.scenario.services)
        is_service = goal == "latency"
        time = np.array([w.time_s if (w.task < services) == is_service else 0.0 for w in ways])
        least = min((t for t in time.tolist() if t > 0), default=_TIE)
        tied: FloatArray = time + _TIE * least * usd / max(float(usd.max(initial=0.0)), _TIE)
        return tied

    def carbon_kgco2e(self, ways: Sequence[Way]) -> FloatArray:
        """Carbon of ways in a month, sites' overhead included; 0 where unknown."""
        return np.array([self.carbon_of(way) or 0.0 for way in ways])

    def carbon_of(self, way: Way) -> float | None:
        """Carbon of a way in a month; None where unknown."""
        energy, offer = way.energy_j_per_month, self.offer(way)
        if energy is None or offer.kgco2e_per_kwh is None:
            return None
        return energy / JOULES_PER_KWH * offer.pue_ratio * offer.kgco2e_per_kwh

    def _power_w(self, way: Way) -> float:
        return (way.energy_j_per_month or 0.0) / SECONDS_PER_MONTH * self.offer(way).pue_ratio

    def _limited(self, ways: Sequence[Way]) -> Mapping[str, tuple[_Use, float | None]]:
        """What may be limited: what ways use of it, and the limit."""
        limits = self.scenario.constraints

        def instances(counts: Sequence[bool]) -> FloatArray:
            return np.array([float(sum(n for c, n in way.instances if counts[c])) for way in ways])

        every = [True] * len(self.offers)
        away = [not offer.is_resident for offer in self.offers]
        limited: dict[str, tuple[_Use, float | None]] = {
            "budget": (lambda: self._objective(ways, "cost"), limits.budget_usd_per_month),
            "power": (lambda: np.array([self._power_w(way) for way in ways]), limits.power_w),
            "carbon": (lambda: self.carbon_kgco2e(ways), limits.carbon_kgco2e_per_month),
            "instance_count": (lambda: instances(every), limits.instance_count),
            "residency": (lambda: instances(away), 0.0 if limits.residency else None),
        }
        for name, most in limits.quota.items():
            is_named = [name in names_of(offer) for offer in self.offers]
            limited[f"quota.{name}"] = partial(instances, is_named), most
        return limited


def run_usd(quote: Quote, time_s: float, runs_per_month: float) -> float:
    """Price of an instance for one run: by the second, or its share of a commitment, which is paid
    for all of the month.

    Args:
        quote: The offer.
        time_s: Time of a run.
        runs_per_month: How often it is run.
    """
    hourly = quote.instance_usd_per_hour
    if quote.kind.startswith("committed"):
        return hourly * HOURS_PER_MONTH / runs_per_month
    return billed_usd(hourly, time_s, minimum_s=quote.offer.minimum_billing_s or 0.0)


def names_of(candidate: Candidate) -> tuple[str, ...]:
    """What a quota may call an offer."""
    offer = candidate.quote.offer
    return (offer.provider, str(offer.device), offer.offer_id)
