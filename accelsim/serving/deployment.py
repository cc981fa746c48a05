"""A fleet as it is deployed: pools of replicas, each a plan with its device, part and price."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from accelsim.catalog import clusters as cluster_catalog
from accelsim.catalog.engines import front_end
from accelsim.economics.device_price import DevicePrice, device_price
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.serving.loads.requests import RequestColumns, RequestLog, chain_starts
from accelsim.serving.memory_capacity import FullBatch, LoadShape, full_batch
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import ReplicaPlan, replica_plan
from accelsim.serving.replicas.autoscaling import Autoscaler
from accelsim.serving.replicas.cold_start import cold_start_s
from accelsim.serving.replicas.fleet import ArrivalQueue, Progress, ReplicaFleet
from accelsim.serving.replicas.outages import Outages
from accelsim.serving.replicas.pools import PoolRouter, ReplicaPool, Route
from accelsim.serving.replicas.prefix_cache import PrefixCache, PrefixTree
from accelsim.serving.replicas.routers import router
from accelsim.serving.replicas.transfers import CacheLink, Transfers
from accelsim.serving.schedulers.base import PriorityQueue, Scheduler
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.window import WindowBatching
from accelsim.serving.steps.step_times import StepTimes
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from torch.nn import Module

    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

Part = Literal["all", "prompts", "further"]
#: Whether what became of requests so far is enough to know, at a simulated time.
Hopeless = Callable[[RequestLog, float], bool]
_FIRST = 0


@frozen(eq=False)
class PoolPlan:
    """Replicas of one plan.

    Attributes:
        plan: One of them.
        price: Of one device.
        replicas: How many at the start.
        part: Their part of a request: all of it, prompts, or the tokens after the first.
        model: Which of the fleet's models they serve.
        link: What a replica's caches leave by, where its part is prompts.
    """

    plan: ReplicaPlan
    price: DevicePrice
    replicas: int
    part: Part = "all"
    model: int = _FIRST
    link: CacheLink | None = None

    @property
    def served(self) -> ServedRun:
        """What its figures are like."""
        plan, is_split = self.plan, self.part != "all"
        return ServedRun(plan.run, is_split=is_split, engine_name=plan.engine_name)

    @property
    def start_s(self) -> float:
        """Cold start of one more."""
        plan, options = self.plan, self.plan.options
        weights = 0.0 if plan.memory is None else plan.memory.weight_bytes
        ranks, device = options.devices_per_replica, plan.run.device
        source = options.storage, options.provisioning_s
        return cold_start_s(weights, ranks, device, plan.engine, *source)

    def full_batch(self, columns: RequestColumns) -> FullBatch:
        """What a replica that never waits does of its part of a load."""
        if columns.model is not None:
            columns = _rows(columns, columns.model == self.model)
        load = LoadShape.of(columns)
        if self.part == "prompts":
            load = replace(load, output_tokens=min(load.output_tokens, 1.0))
        elif self.part == "further":
            load = replace(load, prompt_tokens=0.0)
        return full_batch(self.plan, load)


def _rows(columns: RequestColumns, chosen: BoolArray) -> RequestColumns:
    """Lengths of some requests."""
    count = int(chosen.sum())
    if not count:
        return columns
    lengths = columns.prompt_tokens[chosen], columns.output_tokens[chosen]
    return RequestColumns(np.zeros(count), *lengths)


@frozen(eq=False)
class Deployment:
    """Pools of a fleet; the first is the one a result is named after.

    Attributes:
        pools: The pools.
        options: How the fleet is run.
        models: Names of its models.
        shares: Share of the requests that ask for each.
    """

    pools: tuple[PoolPlan, ...]
    options: ServingOptions
    models: tuple[str, ...]
    shares: tuple[float, ...] = (1.0,)

    def changed(self, change: Callable[[PoolPlan], ReplicaPlan]) -> Deployment:
        """The same with other plans of its pools."""
        pools = [replace(pool, plan=change(pool)) for pool in self.pools]
        return replace(self, pools=tuple(pools))

    def inside(self, rate_per_s: float, columns: RequestColumns) -> float:
        """Requests in service at a time at a rate, no more than full batches hold; where replicas
        come and go, as if there were enough.

        Args:
            rate_per_s: Requests per second.
            columns: Requests that are like the load's.
        """
        request_count = 0.0
        for pool in self.pools:
            full, share = pool.full_batch(columns), self.shares[pool.model]
            most = math.inf if self.options.autoscale else full.sequences * pool.replicas
            request_count += min(full.inside(share * rate_per_s), most)
        return request_count

    def classified(self, columns: RequestColumns, streams: RandomStreams) -> RequestColumns:
        """Requests with the model each asks for, drawn by share where they do not say, and with
        their classes of service, of which a session has one.
        """
        if len(self.models) > 1 and columns.model is None:
            draws = streams.stream("models").random(len(columns))
            columns = replace(columns, model=_by_share(self.shares, draws))
        classes = self.options.service_classes
        if not classes:
            return columns
        draws = streams.stream("classes").random(len(columns))
        if columns.after is not None:
            draws = draws[chain_starts(columns.after)]
        drawn = _by_share([service_class.share_fraction for service_class in classes], draws)
        columns = replace(columns, service_class=drawn)
        priorities = np.array([service_class.priority for service_class in classes])
        return columns if np.ptp(priorities) == 0 else replace(columns, priority=priorities[drawn])


def _by_share(shares: Sequence[float], draws: FloatArray) -> IntArray:
    """Places of shares that uniform draws lie in, shape (n,)."""
    return np.searchsorted(np.cumsum(shares[:-1]), draws, "right")


def deployment(
    workload: str | Path | Workload | Module,
    device: str | DeviceProfile,
    run: RunOptions,
    options: ServingOptions,
    price: PriceChoice,
    *,
    max_context: int,
    steps: StepTimes | None = None,
) -> Deployment:
    """Plan all pools of a fleet.

    Args:
        workload: The first model.
        device: Device of its replicas.
        run: Precision and formats.
        options: How the fleet is run.
        price: Which price of the first device; the cheapest on-demand offers of the others.
        max_context: Longest sequence of the load.
        steps: Step times of the first pool, in place of predicted ones.

    Raises:
        InputError: If a name or choice is wrong or a model does not fit; its subclasses say which.
    """
    first_plan = replica_plan(workload, device, run, options, max_context=max_context, steps=steps)
    paid = device_price(first_plan.run.device, price)
    names, shares = [first_plan.run.workload.name], [1.0]
    pools = [PoolPlan(first_plan, paid, options.replicas)]
    if options.prefill is not None:
        pools = [replace(pools[0], part="further"), _prompts(pools[0], run, options, max_context)]
    for pool in options.pools:
        model = names[0] if pool.model is None else pool.model
        pool_options = options.of_others(pool.replicas, pool.tp, pool.engine)
        plan = replica_plan(model, pool.device, run, pool_options, max_context=max_context)
        if plan.run.workload.name not in names:
            names.append(plan.run.workload.name)
            if pool.share_fraction is None:
                allowed = f"above 0 and below 1 for {model}"
                remedy = "Add share=, the part of the requests that ask for it."
                raise InvalidValueError("pool share", None, allowed, remedy)
            shares.append(pool.share_fraction)
        model_index = names.index(plan.run.workload.name)
        if model_index == _FIRST and options.prefill is not None:
            allowed = "another model, where the first computes its prompts apart"
            raise InvalidValueError("pool", pool.device, allowed)
        pools.append(
            PoolPlan(plan, device_price(plan.run.device), pool.replicas, model=model_index)
        )
    shares[0] = 1.0 - sum(shares[1:])
    if shares[0] <= 0:
        raise InvalidValueError("pool share", sum(shares[1:]), "below 1 in all")
    return Deployment(tuple(pools), options, tuple(names), tuple(shares))


def _prompts(
    further: PoolPlan, run: RunOptions, options: ServingOptions, max_context: int
) -> PoolPlan:
    """The pool that computes prompts for another."""
    prefill = options.prefill
    plan = further.plan
    if prefill is None or not plan.is_continuous:
        allowed = "a model that generates, on an engine with continuous batching"
        raise InvalidValueError("prefill_device", plan.run.workload.name, allowed)
    device = plan.run.device if prefill.device is None else prefill.device
    apart = options.of_others(prefill.replicas, prefill.tp)
    prompt_plan = replica_plan(plan.run.workload, device, run, apart, max_context=max_context)
    price = (
        further.price
        if prompt_plan.run.device is plan.run.device
        else device_price(prompt_plan.run.device)
    )
    cache = prompt_plan.cache
    link = cache_link(SequenceCache() if cache is None else cache.sequence_cache, prefill.link)
    return PoolPlan(prompt_plan, price, prefill.replicas, part="prompts", link=link)


def cache_link(sequence_cache: SequenceCache, name: str) -> CacheLink:
    """What the caches of a replica leave by, every rank's part over a link of its own.

    Args:
        sequence_cache: What a rank keeps of a sequence.
        name: Name of the link.
    """
    link = cluster_catalog.link(name)
    rate = link.bandwidth_bytes_per_s.value * link.achieved_fraction.value
    return CacheLink(link.latency_s.value, rate, sequence_cache)


@frozen(eq=False)
class SimulatedFleet:
    """What a simulation leaves.

    Attributes:
        fleet: Requests and replicas.
        pools: Its pools, as those of the deployment.
        transfers: Moves of caches; None for none.
    """

    fleet: ReplicaFleet
    pools: list[ReplicaPool]
    transfers: Transfers | None = None


def simulate(
    plan: Deployment,
    columns: RequestColumns,
    *,
    users: int = 0,
    streams: RandomStreams,
    progress: Progress | None = None,
    hopeless: Hopeless | None = None,
) -> SimulatedFleet:
    """Simulate a fleet under requests.

    Args:
        plan: The fleet.
        columns: The requests.
        users: Users of a closed loop; 0 for none.
        streams: Random streams of the run.
        progress: Called now and then.
        hopeless: Asked now and then in its place whether what became of requests so far is enough
            to know, with the simulated time.

    Raises:
        HopelessRunError: If it is.
    """
    log = RequestLog(plan.classified(columns, streams))
    if hopeless is not None:
        progress = partial(_watched, log, hopeless)
    prompts = log.of_prompts() if plan.options.prefill is not None else log
    full = [pool.full_batch(log.requests) for pool in plan.pools]
    pools = [
        ReplicaPool(partial(_replica, pool, prompts if pool.part == "prompts" else log, work))
        for pool, work in zip(plan.pools, full, strict=True)
    ]
    replicas = _started(pools, plan)
    is_language = any(pool.plan.is_continuous for pool in plan.pools)
    arrivals = ArrivalQueue(log, users, front_end().time_s if is_language else None)
    if _is_plain(plan):
        choice = router(plan.options.router, log, streams.stream("router"))
        fleet = ReplicaFleet(log, replicas, choice, arrivals)
        simulated = SimulatedFleet(fleet, pools)
    else:
        simulated = _controlled(plan, log, pools, replicas, arrivals, full, streams)
    simulated.fleet.run(progress)
    return simulated


class HopelessRunError(Exception):
    """A run was ended as its outcome is known.

    Attributes:
        came_fraction: Share of its requests that had come by then.
    """

    def __init__(self, came_fraction: float) -> None:
        super().__init__(came_fraction)
        self.came_fraction = came_fraction


def _watched(log: RequestLog, hopeless: Hopeless, came: int, now_s: float) -> None:
    if hopeless(log, now_s):
        raise HopelessRunError(came / len(log))


def _is_plain(plan: Deployment) -> bool:
    """Whether all replicas are alike, stay, and take all requests."""
    options = plan.options
    changes = (options.autoscale, options.outages, options.max_outstanding)
    return len(plan.pools) == 1 and all(change is None for change in changes)


def _started(pools: Sequence[ReplicaPool], plan: Deployment) -> list[Scheduler]:
    """Replicas that there are at the start, which their pools know."""
    replicas: list[Scheduler] = []
    policy = plan.options.autoscale
    for pool, pool_plan in zip(pools, plan.pools, strict=True):
        count = pool_plan.replicas
        if policy is not None:
            count = min(max(count, policy.least), policy.most)
        pool.live = list(range(len(replicas), len(replicas) + count))
        pool.members = pool.live.copy()
        replicas += [pool.make() for _ in range(count)]
    return replicas


def _controlled(
    plan: Deployment,
    log: RequestLog,
    pools: list[ReplicaPool],
    replicas: list[Scheduler],
    arrivals: ArrivalQueue,
    full: list[FullBatch],
    streams: RandomStreams,
) -> SimulatedFleet:
    """A fleet with pools, and what changes them."""
    options, routes = plan.options, _routes(plan, pools, log, streams)
    scalers, outages = [], []
    for index, (pool, pool_plan) in enumerate(zip(pools, plan.pools, strict=True)):
        if options.autoscale is not None or options.outages is not None:
            pool.start_s = pool_plan.start_s
        if options.autoscale is not None:
            request_s = full[index].per_request_s
            scalers.append(Autoscaler(options.autoscale, pool, routes, request_s))
        if options.outages is not None:
            stream = streams.stream("outages", index)
            outages.append(Outages(options.outages, pool, routes, stream))
    fleet = ReplicaFleet(log, replicas, routes, arrivals, [*scalers, *outages])
    pairs = zip(pools, plan.pools, strict=True)
    links = [(pool, pool_plan.link) for pool, pool_plan in pairs if pool_plan.link is not None]
    transfers = Transfers(log, routes, links) if links else None
    if transfers is not None:
        fleet.controls.append(transfers)
        fleet.handover = transfers.take
    routes.refresh(fleet)
    return SimulatedFleet(fleet, pools, transfers)


def _routes(
    plan: Deployment, pools: Sequence[ReplicaPool], log: RequestLog, streams: RandomStreams
) -> PoolRouter:
    """Where the requests of each model go, and their further tokens where those are apart."""
    options = plan.options

    def route(model: int, *parts: Part) -> Route | None:
        matching_pools = [
            pool
            for pool, pool_plan in zip(pools, plan.pools, strict=True)
            if pool_plan.model == model and pool_plan.part in parts
        ]
        choice = router(options.router, log, streams.stream("router", model, len(parts)))
        return Route(matching_pools, choice, options.max_outstanding) if matching_pools else None

    models = range(len(plan.models))
    first_routes = [entry for m in models if (entry := route(m, "all", "prompts")) is not None]
    return PoolRouter(log, first_routes, [route(model, "further") for model in models])


def _replica(pool: PoolPlan, log: RequestLog, full: FullBatch) -> Scheduler:
    """A replica of a pool, as fast beside others as its full batches are."""
    replica = _scheduler(pool, log)
    replica.speed = full.requests_per_s
    return replica


def _scheduler(pool: PoolPlan, log: RequestLog) -> Scheduler:
    plan = pool.plan
    priority = log.requests.priority
    queue = None if priority is None else PriorityQueue(priority.tolist())
    if not plan.is_continuous:
        window_s = plan.options.batch_window_s
        waits_s = plan.engine.batch_window_s if window_s is None else window_s
        return WindowBatching(log, plan.steps, plan.max_seqs, waits_s, queue)
    cache = None
    if plan.prefix_cache and log.requests.prefix_group is not None:
        host_blocks = 0 if plan.options.preemption == "swap" else plan.host_blocks
        forks, size = log.requests.forks, plan.limits.block_tokens
        cache = PrefixTree(forks, size, host_blocks) if forks else PrefixCache(host_blocks)
    is_further = pool.part == "further"
    return ContinuousBatching(log, plan.steps, plan.limits, cache, queue, comes_cached=is_further)
