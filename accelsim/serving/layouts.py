"""A model on one device under a load, layout by layout: how many replicas it takes.

A number of replicas is judged as a whole, behind its router, by the steady part of a run with the
same random draws (common random numbers; Law, Simulation Modeling and Analysis, chapter 11). What
full batches serve is the bound they start from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from accelsim.catalog import workloads as workload_catalog
from accelsim.economics.device_price import DevicePrice, PriceChoice
from accelsim.economics.instances import fleet_price
from accelsim.errors import DoesNotFitError, InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.options import RunOptions
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import RunKey
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.serving.deployment import Hopeless, HopelessRunError
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.measures import RequestTimes
from accelsim.serving.memory_capacity import FullBatch, LoadShape, full_batch
from accelsim.serving.options import TARGET_TIMES, ServingOptions, SloTargets, longest_times
from accelsim.serving.plan import ReplicaPlan, replica_plan
from accelsim.serving.result import ServingResult
from accelsim.serving.serve import described, simulate_plan
from accelsim.serving.steps.combined_steps import ScaledSteps
from accelsim.serving.steps.step_times import StepTimes
from accelsim.simulation.randomness import RandomStreams

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

#: Most replicas of a fleet.
MOST_REPLICAS = 4096
#: Ranks of the layouts that are tried where none are said.
RANKS = (1, 2, 4, 8)
#: Share of the requests that had come when a run of too few replicas was lost, from which on few
#: more suffice.
_NEARLY = 0.7


def drawn_requests(
    load: Arrivals | RequestColumns, rate_per_s: float, streams: RandomStreams
) -> RequestColumns:
    """Requests of a load at a rate."""
    if isinstance(load, RequestColumns):
        return load.at_rate(rate_per_s)
    return replace(load, rate_per_s=rate_per_s).columns(streams)


@lru_cache(maxsize=256)
def _cached_plan(
    _: RunKey,
    workload: str,
    device: str | DeviceProfile,
    run: RunOptions,
    options: ServingOptions,
    longest: int,
) -> ReplicaPlan:
    """A replica and its step times."""
    return replica_plan(workload, device, run, options, max_context=longest)


@frozen(eq=False)
class Layouts:
    """A model on a device under a load, whatever its ranks; each layout of ranks is a search.

    Attributes:
        workload: The model.
        device: Every rank's device.
        run: Precision and formats.
        load: The load, or requests as columns, whose gaps other rates stretch.
        rate_per_s: Its rate; None where the most is looked for that replicas serve.
        steps: Step times to use in place of predicted ones.
        seed: Of the random numbers.
    """

    workload: str | Workload
    device: str | DeviceProfile
    run: RunOptions
    load: Arrivals | RequestColumns
    rate_per_s: float | None
    steps: StepTimes | None = None
    seed: int = 0

    def of(self, options: ServingOptions) -> LayoutSearch:
        """The search of one layout.

        Args:
            options: How the model is served.

        Raises:
            InputError: If it does not fit, or a name or choice is wrong.
        """
        load, rate, streams = self.load, self.rate_per_s, RandomStreams(self.seed)
        drawn = drawn_requests(load, rate or load.rate_per_s or 1.0, streams)
        shape, longest = LoadShape.of(drawn), drawn.longest
        plan = self._planned(options, longest)
        full = full_batch(plan, shape).of_starts(drawn)
        if isinstance(load, Arrivals):
            inside: float = full.sequences * options.replicas
            if rate is not None:
                inside = min(
                    full.inside(rate), _inside_in_time(rate * drawn.per_start, options, shape)
                )
            load = load.steady(inside)
            longest = max(longest, load.columns(streams).longest)
            plan = self._planned(options, longest)
        return LayoutSearch(plan, load, self.seed, full, longest)

    def _planned(self, options: ServingOptions, longest: int) -> ReplicaPlan:
        """A replica whose step times reach the next power of two, so that other loads share it."""
        reach = 1 << (longest - 1).bit_length()
        run = self.workload, self.device, self.run
        names = (*run[:2], self.run.host or "")
        is_named = all(isinstance(name, str) for name in names) and self.run.learned is None
        if self.steps is not None or not is_named:
            return replica_plan(*run, options, max_context=reach, steps=self.steps)
        usual = replace(options, slo=SloTargets(), replicas=1)
        files = RunKey(resolve(*run))  # those of today, where a name is that of a file
        return replace(_cached_plan(files, *run, usual, reach), options=options)

    def at_rate(self, rate_per_s: float) -> Layouts:
        """The same under another rate."""
        load = self.load
        if isinstance(load, RequestColumns):
            load = load.at_rate(rate_per_s)
        else:
            load = replace(load, rate_per_s=rate_per_s)
        return replace(self, load=load, rate_per_s=rate_per_s)

    def that_fit(self, options: ServingOptions) -> Iterator[LayoutSearch]:
        """Searches of layouts that fit and whose ranks a node joins."""
        for tp, pp, ep in ranks_tried(self.workload, pp=(options.pp,)):
            if options.ep == 1 or ep == tp:
                with suppress(DoesNotFitError, InvalidValueError, UnsupportedOperatorError):
                    yield self.of(replace(options, tp=tp, pp=pp, ep=ep))


def ranks_tried(
    workload: str | Workload,
    tp: Sequence[int] = RANKS,
    pp: Sequence[int] = (1,),
    ep: Sequence[int] = (),
) -> Iterator[tuple[int, int, int]]:
    """Ranks of a replica that are tried: tp, pp and ep.

    Args:
        workload: The model.
        tp: Ranks that share heads and columns.
        pp: Pipeline stages.
        ep: Ranks that share the experts; one, and of a mixture tp as well, where none are said.
    """
    model = workload_catalog.workload(workload) if isinstance(workload, str) else workload
    for ranks, stages in product(tp, pp):
        for experts in ep or ((1, ranks) if ranks > 1 and model.has_experts else (1,)):
            yield ranks, stages, experts


def _loosest(options: ServingOptions) -> SloTargets:
    """The longest time of each target that a class has; none where one has none."""
    classes = [longest_times(slo) for slo in options.targets]
    longest: Document = dict.fromkeys(TARGET_TIMES)
    for name in set(TARGET_TIMES).intersection(*classes):
        longest[name] = max(times[name] for times in classes)
    return replace(options.slo, **longest)


def _inside_in_time(rate_per_s: float, options: ServingOptions, shape: LoadShape) -> float:
    """Requests in service at a time where a fleet keeps its targets, at most: their rate by the
    longest that they may stay (Little, Operations Research 9(3), 1961); one that does not keep them
    is known sooner.
    """
    slo = _loosest(options)
    stay_s = slo.e2e_s or math.inf
    if slo.ttft_s is not None and slo.tpot_s is not None:
        stay_s = min(stay_s, slo.ttft_s + slo.tpot_s * max(shape.output_tokens - 1, 0.0))
    return rate_per_s * stay_s / slo.attainment_fraction


def least_met(result: ServingResult) -> tuple[float, int]:
    """Share of the requests that met the targets, and how many there are; of the class that met
    them least, where there are some.
    """
    all_requests = {
        "slo_attainment_fraction": result.slo_attainment_fraction,
        "requests": result.requests,
    }
    rows = [row for row in result.classes if row["slo_attainment_fraction"] is not None]
    return min(
        (row["slo_attainment_fraction"] or 0.0, row["requests"]) for row in rows or [all_requests]
    )


def share_met(result: ServingResult) -> float:
    """Share of the requests that met the targets; see `least_met`."""
    return least_met(result)[0]


@dataclass(eq=False)
class LayoutSearch:
    """Simulations of one layout at rates, replicas and limits; each once.

    Attributes:
        plan: A replica.
        arrivals: The load.
        seed: Of the random numbers.
        full: Its full batch.
        longest: Longest sequence of the load.
        price: Price of one device, by the number of replicas.
        count: Simulations made.
        too_few: Most replicas that are known not to suffice.
        enough: Fewest that are known to, and their simulation; None while none are.
    """

    plan: ReplicaPlan
    arrivals: Arrivals | RequestColumns
    seed: int
    full: FullBatch
    longest: int
    price: Callable[[int], DevicePrice] = lambda _: DevicePrice(None, None)
    count: int = 0
    enough: tuple[int, ServingResult] | None = None

    def __post_init__(self) -> None:
        """Begin with nothing simulated."""
        self.too_few = self.fewest - 1
        self._step, self._lasted_fraction = 1, 0.0

    @property
    def rate_per_s(self) -> float:
        """Requests per second that come, or sessions."""
        return self.arrivals.rate_per_s or 0.0

    @property
    def fewest(self) -> int:
        """Replicas whose full batches serve the load."""
        return max(1, math.ceil(self.rate_per_s / self.full.requests_per_s))

    @property
    def bound_usd_per_hour(self) -> float:
        """Price of the fewest replicas."""
        return self.usd_per_hour(self.fewest)

    def in_instances(self, choice: PriceChoice | None) -> Callable[[int], DevicePrice]:
        """Prices of a device by the number of replicas, where whole instances are paid."""
        device, ranks = self.plan.run.device, self.plan.options.devices_per_replica
        return cache(lambda replicas: fleet_price(device, choice, replicas, ranks))

    def usd_per_hour(self, replicas: int) -> float:
        """Price of replicas."""
        device_usd_per_hour = self.price(replicas).usd_per_hour or 0.0
        return device_usd_per_hour * self.plan.options.devices_per_replica * replicas

    def most_below(self, usd_per_hour: float) -> int:
        """Most replicas that cost less, and those of full batches at least."""
        most = self.fewest
        while most < MOST_REPLICAS and self.usd_per_hour(most + 1) < usd_per_hour:
            most = min(most + 1, MOST_REPLICAS) if usd_per_hour < math.inf else MOST_REPLICAS
        return most

    def slower(self, ratio: float, prompt_ratio: float) -> LayoutSearch:
        """The same layout under the same requests, its steps slower.

        Args:
            ratio: Time of steps of further tokens over the predicted.
            prompt_ratio: The same of steps with prompts.
        """
        plan = replace(self.plan, steps=ScaledSteps(self.plan.steps, ratio, prompt_ratio))
        return LayoutSearch(
            plan,
            self.arrivals,
            self.seed,
            full_batch(plan, self.shape).of_starts(self.columns),
            self.longest,
        )

    @cached_property
    def shape(self) -> LoadShape:
        """Means of the load's requests."""
        return LoadShape.of(self.columns)

    @cached_property
    def columns(self) -> RequestColumns:
        """The requests at the rate of the load, or one a second."""
        return drawn_requests(self.arrivals, self.rate_per_s or 1.0, RandomStreams(self.seed))

    @cached_property
    def alone_s(self) -> tuple[float, float]:
        """Least time to the first token, and of a further one, of the requests at the quantile that
        the targets are asked of: no batch is faster than one request alone. Estimate: the cache
        holds half of the output in the mean.
        """
        share, plan, drawn = self.plan.options.slo.attainment_fraction, self.plan, self.columns
        prompt = float(np.quantile(drawn.prompt_tokens, share, method="inverted_cdf"))
        cached_tokens = float(np.quantile(drawn.prompt_tokens + 0.5 * drawn.output_tokens, share))
        tokens = min(max(int(prompt), 1), plan.max_batch_tokens)
        first_s = plan.steps.step(tokens, 0.5 * tokens * (tokens + 1.0), 0, 0)[0]
        has_more = bool((drawn.output_tokens > 1).any())
        return first_s, plan.steps.decode_run(1, cached_tokens, 1)[0] if has_more else 0.0

    def full_dynamic_j(self, idle_w: float) -> float:
        """Energy of a request, or of all of a session's, in a full batch on top of idle power; no
        batch spends less. Estimate: of steps of prompts and of tokens alone.

        Args:
            idle_w: Power of a replica without load.
        """
        plan, shape, count = self.plan, self.shape, self.full.sequences
        tokens = max(1, plan.max_batch_tokens)
        prompt = plan.steps.step(tokens, tokens * shape.prompt_context, 0, 0)
        parts = [(prompt, shape.prompt_tokens / tokens)]
        if shape.output_tokens > 1:
            further = plan.steps.decode_run(count, count * shape.decode_context, 1)
            parts.append((further, (shape.output_tokens - 1) / count))
        request_j = sum(max(joules - idle_w * time_s, 0.0) * n for (time_s, joules), n in parts)
        return request_j * self.columns.per_start

    @property
    def is_able(self) -> bool:
        """Whether requests alone meet the targets: else no number of replicas does."""
        slo, (first_s, further_s) = _loosest(self.plan.options), self.alone_s
        if not self.plan.is_continuous or self.plan.options.guessed is not None:
            return True
        is_new = self.columns.prefix_group is None  # else a part of the prompt is cached
        is_soon = not is_new or first_s <= (slo.ttft_s or math.inf)
        return is_soon and further_s <= (slo.tpot_s or math.inf)

    def simulate(
        self,
        rate_per_s: float,
        replicas: int,
        plan: ReplicaPlan | None = None,
        hopeless: Hopeless | None = None,
    ) -> ServingResult:
        """One simulation.

        Raises:
            HopelessRunError: If `hopeless` says so.
        """
        self.count += 1
        plan = plan or self.plan
        streams = RandomStreams(self.seed)
        plan = replace(plan, options=replace(plan.options, replicas=replicas))
        is_own = rate_per_s == self.rate_per_s
        columns = self.columns if is_own else drawn_requests(self.arrivals, rate_per_s, streams)
        load = described(self.arrivals) | {"rate_per_s": rate_per_s}
        return simulate_plan(plan, columns, self.price(replicas), streams, load, hopeless)

    def good(self, replicas: int) -> ServingResult | None:
        """The simulation of replicas that serve the load; None of those that do not, which ends as
        soon as too many requests are late.
        """
        try:
            result = self.simulate(self.rate_per_s, replicas, None, self._is_late)
        except HopelessRunError as error:
            self._lasted_fraction = error.came_fraction
            return None
        self._lasted_fraction = 1.0
        return result if self.is_good(result) else None

    def _is_late(self, log: RequestLog, now_s: float) -> bool:
        """Whether more requests are late by now than may be; one that still waits ends no sooner
        than now.
        """
        names = ("arrival_s", "first_token_s", "finish_s")
        arrival, first_token_s, finish = (np.fmin(log.column(name), now_s) for name in names)
        lengths, classes = ("output_tokens", "prompt_tokens"), np.asarray(log.service_class)
        columns = (*map(log.column, lengths), classes)
        times = RequestTimes(arrival, arrival, first_token_s, finish, *columns)
        options = self.plan.options
        missed = np.bincount(classes, ~times.met(options.targets), len(options.targets))
        count = np.bincount(classes, minlength=len(missed))
        return bool((missed > (1 - options.slo.attainment_fraction) * count).any())

    def is_good(self, result: ServingResult) -> bool:
        """Whether the load is served and enough requests meet the targets."""
        enough = self.plan.options.slo.attainment_fraction
        return share_met(result) >= enough and not result.saturated

    def fewest_within(self, most: int) -> tuple[int, ServingResult] | None:
        """The fewest replicas, and their simulation; None where `most` do not suffice. What was
        found before is not asked again.

        Args:
            most: Most replicas.
        """
        while not self.is_settled and self.too_few < most:
            self.narrow(most)
        return None if self.enough is None or self.enough[0] > most else self.enough

    @property
    def is_settled(self) -> bool:
        """Whether the fewest replicas are known."""
        return self.enough is not None and self.enough[0] == self.too_few + 1

    def narrow(self, most: int, first_guess: int = 0) -> None:
        """One simulation more: from the bound up, by steps that double while replicas are far from
        enough, until they suffice; then the bracket is halved (Bentley and Yao, Information
        Processing Letters 5(3), 1976).

        Args:
            most: Most replicas of interest.
            first_guess: Replicas to begin with, where a guess is known.
        """
        if self.enough is None:
            guess = max(first_guess, self.too_few + self._step)
            guess = most if most <= guess + 1 else guess
            self._step *= 1 if guess == first_guess else 2
        else:
            guess = (self.too_few + self.enough[0]) // 2
        was_far = self._lasted_fraction <= _NEARLY
        is_enough = self.suffices(max(min(guess, most), self.too_few + 1))
        if not is_enough and was_far and self._lasted_fraction > _NEARLY:
            self._step = 1

    def suffices(self, replicas: int) -> bool:
        """Whether replicas serve the load: simulated where it is not known of fewer or more."""
        if self.too_few < replicas and (self.enough is None or replicas < self.enough[0]):
            result = self.good(replicas)
            if result is None:
                self.too_few = replicas
            else:
                self.enough = replicas, result
        return replicas > self.too_few
