"""Serve a load with a model on devices: the door to request-level simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from accelsim import __version__
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.planning.options import PriceChoice, RunOptions, options_and_price
from accelsim.planning.price import DevicePrice, device_price
from accelsim.planning.serving.capacity import LoadShape, full_batch
from accelsim.planning.serving.measures import (
    RequestTimes,
    distribution,
    gap_distribution,
    occupancy,
    trust,
)
from accelsim.planning.serving.options import ServingOptions
from accelsim.planning.serving.plan import ReplicaPlan, replica_plan
from accelsim.planning.serving.result import ServingResult
from accelsim.result import Metric
from accelsim.simulation.randomness import RandomStreams
from accelsim.simulation.serving.arrivals import Arrivals
from accelsim.simulation.serving.fleet import ArrivalQueue, Fleet
from accelsim.simulation.serving.prefix_cache import PrefixCache
from accelsim.simulation.serving.requests import RequestColumns, RequestLog
from accelsim.simulation.serving.routers import router
from accelsim.simulation.serving.schedulers.base import PriorityQueue, Scheduler
from accelsim.simulation.serving.schedulers.continuous import ContinuousBatching
from accelsim.simulation.serving.schedulers.window import WindowBatching
from accelsim.simulation.serving.step_times import ScaledSteps, StepTimes

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

__all__ = ["described", "serve", "simulate_plan"]

_OPTION_FIELDS: Final = frozenset(f.name for f in fields(ServingOptions))
_Z90: Final = 1.6448536269514722
Progress = Callable[[int, float], None]


def serve(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    arrivals: Arrivals | RequestColumns,
    options: ServingOptions | None = None,
    run: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    steps: StepTimes | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    intervals: bool = True,
    **keywords: Any,
) -> ServingResult:
    """Simulate serving a load, request by request.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name of every rank's device, or a profile.
        arrivals: The load: how it is drawn, or requests as columns.
        options: How the model is served; one replica of the default engine where None.
        run: Precision and formats; the device's usual ones where None.
        price: Which price; the cheapest on-demand offer where None.
        steps: Step times to use in place of predicted ones.
        seed: Of the random numbers.
        progress: Called now and then with the requests that have come and the simulated time.
        intervals: Also simulate both ends of the 90 % interval of what all step times have in
            common, for the intervals of the figures.
        keywords: Fields of `ServingOptions`, `RunOptions` and `PriceChoice`, in place of theirs.

    Raises:
        InputError: If a name, size or choice is wrong, or the model does not fit; its subclasses
            say which.
    """
    served = replace(
        options or ServingOptions(),
        **{name: value for name, value in keywords.items() if name in _OPTION_FIELDS},
    )
    rest = {name: value for name, value in keywords.items() if name not in _OPTION_FIELDS}
    chosen, paid = options_and_price(run, price, rest)
    streams = RandomStreams(seed)
    columns = arrivals.columns(streams) if isinstance(arrivals, Arrivals) else arrivals
    longest = int((columns.prompt_tokens + columns.output_tokens).max())
    plan = replica_plan(workload, device, chosen, served, max_context=longest, steps=steps)
    cost = device_price(plan.run.device, paid)
    users = arrivals.users or 0 if isinstance(arrivals, Arrivals) else 0
    load = described(arrivals)
    result = simulate_plan(
        plan, columns, cost, users=users, streams=streams, progress=progress, load=load
    )
    if not intervals or not plan.steps.log_sigma:
        return result
    ends = [
        simulate_plan(_scaled(plan, z), columns, cost, users=users, streams=streams).metrics
        for z in (-_Z90, _Z90)
    ]
    return replace(result, intervals=_intervals(result, *ends))


def _scaled(plan: ReplicaPlan, z: float) -> ReplicaPlan:
    """The plan with steps slower by z standard deviations of what they have in common."""
    sigma = plan.steps.log_sigma * math.sqrt(plan.steps.common_fraction)
    return replace(plan, steps=ScaledSteps(plan.steps, math.exp(z * sigma)))


def _intervals(
    result: ServingResult, *ends: Mapping[str, Metric]
) -> dict[str, tuple[float, float]]:
    """Least and largest of each figure over the ends of the step times' interval."""
    found = {}
    for name, metric in result.metrics.items():
        values = [one.value for one in (metric, *(end[name] for end in ends))]
        figures = [value for value in values if value is not None]
        if len(figures) == len(values):
            found[name] = (min(figures), max(figures))
    return {name: ends for name, ends in found.items() if ends[0] < ends[1]}


def simulate_plan(
    plan: ReplicaPlan,
    columns: RequestColumns,
    price: DevicePrice,
    *,
    users: int = 0,
    streams: RandomStreams,
    progress: Progress | None = None,
    load: Mapping[str, Any] | None = None,
) -> ServingResult:
    """Simulate replicas of one plan under requests.

    Args:
        plan: One replica.
        columns: The requests.
        price: Of one device.
        users: Users of a closed loop; 0 for none.
        streams: Random streams of the run.
        progress: Called now and then.
        load: What the load was, for the result's inputs.
    """
    log = RequestLog(columns)
    replicas = [_replica(plan, log) for _ in range(plan.options.replicas)]
    chosen = router(plan.options.router, log, streams.stream("router"))
    fleet = Fleet(log, replicas, chosen, ArrivalQueue(log, users))
    fleet.run(progress)
    return _result(plan, fleet, price, streams.seed, dict(load or {}), is_closed=users > 0)


def _replica(plan: ReplicaPlan, log: RequestLog) -> Scheduler:
    priority = log.asked.priority
    queue = None if priority is None else PriorityQueue(priority.tolist())
    if not plan.is_continuous:
        window_s = plan.options.batch_window_s
        waits_s = plan.engine.batch_window_s if window_s is None else window_s
        return WindowBatching(log, plan.steps, plan.max_seqs, waits_s, queue)
    cache = None
    if plan.prefix_cache and log.asked.prefix_group is not None:
        cache = PrefixCache()
    return ContinuousBatching(log, plan.steps, plan.limits, cache, queue)


def described(arrivals: Arrivals | RequestColumns) -> dict[str, Any]:
    """A load, for a result's inputs."""
    if isinstance(arrivals, RequestColumns):
        return {"requests": len(arrivals)}
    return {f.name: getattr(arrivals, f.name) for f in fields(arrivals)}


def _result(
    plan: ReplicaPlan,
    fleet: Fleet,
    price: DevicePrice,
    seed: int,
    load: dict[str, Any],
    *,
    is_closed: bool,
) -> ServingResult:
    log, replicas = fleet.log, fleet.replicas
    times = RequestTimes.of(log)
    arrived = log.column("arrival_s")
    start_s = float(np.nanmin(arrived))
    arrived = arrived[arrived <= fleet.now_s]  # all, unless interrupted
    came = len(arrived)
    duration_s = max(fleet.now_s - start_s, 1e-12)
    busy_s = sum(replica.tally.busy_s for replica in replicas)
    tokens = int(times.output_tokens.sum())
    full = full_batch(plan, LoadShape.of(log.asked))
    work_s = full.work_s(sum(replica.tally.prompt_tokens for replica in replicas), tokens)
    slo = plan.options.slo
    met = None if slo.is_empty else times.met(slo)
    span_s = max(float(arrived.max(initial=start_s)) - start_s, 1e-12)
    saturated, notes = trust(times, work_s / (span_s * len(replicas)), is_closed=is_closed)
    notes = [*_skips(fleet), *notes]
    return ServingResult(
        workload=plan.run.workload.name,
        device=plan.run.device.name,
        replicas=len(replicas),
        engine=plan.engine_name,
        plan=plan.to_dict(),
        requests=came,
        completed=len(times),
        duration_s=duration_s,
        throughput_requests_per_s=len(times) / duration_s,
        output_tokens_per_s=tokens / duration_s,
        goodput_requests_per_s=None if met is None else met / duration_s,
        slo_attainment_fraction=None if met is None else met / max(came, 1),
        ttft_s=distribution(times.ttft_s),
        tpot_s=distribution(times.tpot_s),
        itl_s=gap_distribution(replicas),
        e2e_s=distribution(times.e2e_s),
        queue_s=distribution(times.queue_s),
        kv_occupancy_fraction=occupancy(replicas),
        utilisation_fraction=min(1.0, work_s / (duration_s * len(replicas))),
        preemptions=sum(replica.tally.preemption_count for replica in replicas),
        **_energy(plan, fleet, duration_s, busy_s, tokens or len(times)),
        **_cost(plan, price, duration_s, tokens, len(times)),
        saturated=saturated,
        seed=seed,
        log=log,
        inputs={"load": load, "run": plan.run.to_dict(), "options": _options(plan.options)},
        provenance=replace(plan.run.provenance, version=__version__, seed=seed),
        warnings=tuple(notes),
    )


def _options(options: ServingOptions) -> dict[str, Any]:
    named = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "slo"}
    return named | {"slo": {f.name: getattr(options.slo, f.name) for f in fields(options.slo)}}


def _skips(fleet: Fleet) -> list[str]:
    """What was left out, by reason."""
    notes = []
    rejected = fleet.log.rejected
    if rejected:
        first, reason = next(iter(rejected.items()))
        notes.append(f"{len(rejected)} requests refused; the first, request {first}, {reason}")
    if fleet.is_interrupted:
        notes.append(f"interrupted at {fleet.now_s:.6g} s of simulated time: a partial result")
    return notes


def _energy(
    plan: ReplicaPlan, fleet: Fleet, duration_s: float, busy_s: float, count: int
) -> dict[str, Any]:
    """Energy of steps and of the idle time between them."""
    names = ("energy_j", "energy_j_per_token", "average_power_w", "peak_power_w")
    idle_w = plan.steps.idle_w
    if idle_w is None:
        return dict.fromkeys(names)
    tallies = [replica.tally for replica in fleet.replicas]
    energy = sum(tally.energy_j for tally in tallies)
    energy += idle_w * max(len(tallies) * duration_s - busy_s, 0.0)
    peak = sum(max(tally.peak_power_w, idle_w) for tally in tallies)
    values = (energy, energy / count if count else None, energy / duration_s, peak)
    return dict(zip(names, values, strict=True))


def _cost(
    plan: ReplicaPlan, price: DevicePrice, duration_s: float, tokens: int, requests: int
) -> dict[str, Any]:
    """USD per million generated tokens and per 1,000 requests, every device paid all the time."""
    cost: dict[str, Any] = {
        "cost_usd_per_million_tokens": None,
        "cost_usd_per_1000_requests": None,
        "offer": price.offer,
    }
    if price.usd_per_hour is None:
        return cost
    devices = plan.options.devices_per_replica * plan.options.replicas
    paid_usd = price.usd_per_hour * devices * duration_s / SECONDS_PER_HOUR
    if tokens:
        cost["cost_usd_per_million_tokens"] = 1e6 * paid_usd / tokens
    if requests:
        cost["cost_usd_per_1000_requests"] = 1e3 * paid_usd / requests
    return cost
