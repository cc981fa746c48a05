"""The figures of a simulated fleet: rates, energy, cost, and each pool's part of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

import numpy as np

from accelsim import __version__
from accelsim.economics.result import JOULES_PER_KWH, SECONDS_PER_HOUR, SECONDS_PER_MONTH
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.serving.curves import load_curves, paid_s
from accelsim.serving.deployment import Deployment, PoolPlan, SimulatedFleet
from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.measures import (
    RequestTimes,
    ServedPart,
    distribution,
    gap_distribution,
    occupancy,
    prefix_hits,
    session_times,
    trust,
)
from accelsim.serving.memory_capacity import FullBatch
from accelsim.serving.plan import ReplicaPlan
from accelsim.serving.result import ServingResult
from accelsim.serving.schedulers.base import Scheduler
from accelsim.serving.trust import ServedRun
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray


@frozen(eq=False)
class _Period:
    """What a pool did in a part of a run.

    Attributes:
        paid_s: Seconds that all its replicas were paid.
        busy_s: Seconds in which they were in a step.
        steps_j: Energy of the steps.
        work_s: Seconds of full batches that their work takes.
    """

    paid_s: float
    busy_s: float
    steps_j: float
    work_s: float


@frozen(eq=False)
class _PoolFigures:
    """What a pool did.

    Attributes:
        pool: Its plan.
        replicas: All replicas it ever had.
        whole_run: What they did in the whole run.
        steady_part: What they did in its steady part.
    """

    pool: PoolPlan
    replicas: list[Scheduler]
    whole_run: _Period
    steady_part: _Period

    @property
    def utilisation_fraction(self) -> float:
        return min(1.0, self.steady_part.work_s / max(self.steady_part.paid_s, 1e-12))

    def energy_j(self, period: _Period) -> float | None:
        """Energy of steps and of the idle time between them; None where unknown. Estimate: between
        steps a replica takes its idle power.
        """
        idle_w = self.pool.plan.steps.idle_w
        if idle_w is None:
            return None
        return period.steps_j + idle_w * max(period.paid_s - period.busy_s, 0.0)

    @property
    def devices(self) -> int:
        """Devices of the replicas that there are at the start."""
        return self.pool.replicas * self.pool.plan.options.devices_per_replica

    @property
    def peak_power_w(self) -> float | None:
        idle_w = self.pool.plan.steps.idle_w
        if idle_w is None:
            return None
        return sum(max(replica.tally.peak_power_w, idle_w) for replica in self.replicas)

    def cost_usd(self, period: _Period) -> float | None:
        """What all devices cost while they are paid; None where the price is unknown."""
        devices = self.pool.plan.options.devices_per_replica
        usd_per_hour = self.pool.price.usd_per_hour
        if usd_per_hour is None:
            return None
        return usd_per_hour * devices * period.paid_s / SECONDS_PER_HOUR

    def carbon_kgco2e(self, period: _Period) -> float | None:
        """Emissions of the energy in the offer's region; None where one of both is unknown."""
        energy_j, kgco2e_per_kwh = self.energy_j(period), self.pool.price.kgco2e_per_kwh
        if energy_j is None or kgco2e_per_kwh is None:
            return None
        return energy_j / JOULES_PER_KWH * kgco2e_per_kwh


def _cache_tokens(plan: ReplicaPlan) -> Document:
    """Tokens that the cache of a replica holds, and their interval."""
    tokens = plan.cache_tokens(plan.blocks)
    few, many = (plan.cache_tokens(blocks) for blocks in plan.blocks_range)
    if few is None or many is None or few == many:
        return {"kv_cache_tokens": tokens}
    return {"kv_cache_tokens": tokens, "intervals": {"kv_cache_tokens": (few, many)}}


def _load(
    log: RequestLog, times: RequestTimes, arrived: FloatArray, start_s: float
) -> tuple[float, str, RequestTimes]:
    """When the last of a load came, what it is counted in, and its times; of sessions it comes as
    long as they begin.
    """
    if log.requests.session is None:
        return float(arrived.max(initial=start_s)), "requests", times
    return float(np.nanmax(log.requests.arrival_s)), "sessions", session_times(log)


def result_of(
    plan: Deployment, simulated: SimulatedFleet, *, load: Values, seed: int, is_closed: bool
) -> ServingResult:
    """The result of a simulation.

    Args:
        plan: The fleet.
        simulated: Its simulation.
        load: What the load was, for the inputs.
        seed: Of the random numbers.
        is_closed: Whether users wait for their answers.
    """
    fleet, replica = simulated.fleet, plan.pools[0].plan
    times = RequestTimes.of(fleet.log)
    arrived = fleet.log.column("arrival_s")
    start_s = float(np.nanmin(arrived))
    has_come = arrived <= fleet.now_s  # all, unless interrupted
    classes, arrived = fleet.log.service_class[has_come], arrived[has_come]
    duration_s = max(fleet.now_s - start_s, 1e-12)
    last_s, unit, loads = _load(fleet.log, times, arrived, start_s)
    steady_s = loads.steady_part(start_s, last_s, start_s + duration_s)
    served = times.within(*steady_s)
    pools = _pools(plan, simulated, start_s, steady_s, served)
    offered = _offered(pools, duration_s / max(last_s - start_s, 1e-12))
    saturated, notes = trust(loads, offered, is_closed=is_closed, unit=unit)
    rows = [_row(plan, simulated, i, figures, duration_s) for i, figures in enumerate(pools)]
    totals = _energy_and_cost(pools, served)
    return ServingResult(
        workload=replica.run.workload.name,
        device=replica.run.device.name,
        replicas=plan.pools[0].replicas,
        **_counts(pools),
        engine=replica.engine_name,
        plan=replica.to_dict(),
        **_cache_tokens(replica),
        requests=len(arrived),
        completed=len(times),
        duration_s=duration_s,
        steady_from_s=steady_s[0] - start_s,
        steady_s=served.seconds,
        output_tokens_per_s=served.tokens / served.seconds,
        **_of_requests(plan, times, classes, served),
        itl_s=gap_distribution(fleet.replicas),
        kv_occupancy_fraction=occupancy(fleet.replicas),
        prefix_hit_fraction=prefix_hits(fleet.replicas),
        **_of_sessions(fleet.log, totals["cost_usd_per_1000_requests"]),
        utilisation_fraction=_mean_use(pools),
        preemptions=sum(replica.tally.preemption_count for replica in fleet.replicas),
        **totals,
        saturated=saturated,
        seed=seed,
        pools=tuple(rows),
        log=fleet.log,
        curves=load_curves(fleet, start_s, _idle_w(plan, simulated)),
        runs={"further": replica.run, "prompts": _prompts(plan).plan.run},
        inputs={"load": load, "run": replica.run.to_dict(), "options": asdict(plan.options)},
        provenance=replace(replica.run.provenance, version=__version__, seed=seed),
        warnings=(*_engine_notes(plan), *_skips(simulated), *notes, *_pool_notes(pools)),
    )


def _pool_notes(pools: list[_PoolFigures]) -> list[str]:
    """What replicas that differ, and prices, are to be known for; each once."""
    prices = dict.fromkeys(note for figures in pools for note in figures.pool.price.notes)
    return [*_spread_replicas(pools), *prices]


def _engine_notes(plan: Deployment) -> tuple[str, ...]:
    """Models of another's architecture; engines whose data, or the user's own runs, are of another
    version.
    """
    notes = [note for pool in plan.pools for note in pool.plan.run.workload.notices]
    notes += [note for pool in plan.pools if (note := pool.plan.engine.note)]
    served = (ServedRun(pool.plan.run, engine_name=pool.plan.engine_name) for pool in plan.pools)
    return tuple(dict.fromkeys((*notes, *(note for run in served for note in run.learned_notes))))


def _offered(pools: Sequence[_PoolFigures], stretch: float) -> float:
    """Work that arrives over what the busiest pool can do, where a run took so many times as long
    as its arrivals.
    """
    return max(
        figures.whole_run.work_s * stretch / max(figures.whole_run.paid_s, 1e-12)
        for figures in pools
    )


def _of_requests(
    plan: Deployment, times: RequestTimes, came: IntArray, served: ServedPart
) -> Document:
    """Rates of requests, and distributions of their times; of all, and of each class of service.

    Args:
        plan: The fleet.
        times: Times of the requests that ended.
        came: Classes of those that came.
        served: What is served in the steady part.
    """
    classes = plan.options.service_classes
    targets = plan.options.targets
    met = None if all(slo.is_empty for slo in targets) else times.met(targets)
    rows: list[Document] = []
    for index, (service_class, slo) in enumerate(zip(classes, targets, strict=False)):
        in_class, count = times.service_class == index, int((came == index).sum())
        good = None if met is None or slo.is_empty else met[in_class]
        figures = _quality(
            times.of_class(index), good, count, served.requests[in_class], served.seconds
        )
        head = {"name": service_class.name, "priority": service_class.priority, "requests": count}
        rows.append({**head, "completed": int(in_class.sum()), **figures})
    return {
        "throughput_requests_per_s": float(served.requests.sum()) / served.seconds,
        **_quality(times, met, len(came), served.requests, served.seconds),
        "classes": tuple(rows),
    }


def _quality(
    times: RequestTimes, met: BoolArray | None, came: int, share: FloatArray, steady_s: float
) -> Document:
    """Requests that met their targets, and distributions of times (goodput: Zhong et al.,
    DistServe, OSDI 2024).

    Args:
        times: Of the requests that ended.
        met: Whether each met its targets; None without targets.
        came: Requests that came.
        share: Share of each that lies in the steady part.
        steady_s: Length of that part.
    """
    return {
        "goodput_requests_per_s": None if met is None else float(share @ met) / steady_s,
        "slo_attainment_fraction": None if met is None else int(met.sum()) / max(came, 1),
        "ttft_s": distribution(times.ttft_s),
        "tpot_s": distribution(times.tpot_s),
        "e2e_s": distribution(times.e2e_s),
        "queue_s": distribution(times.queue_s),
    }


def _prompts(plan: Deployment) -> PoolPlan:
    """The pool that computes the prompts of the first model."""
    return next((pool for pool in plan.pools if pool.part == "prompts"), plan.pools[0])


def _pools(
    plan: Deployment,
    simulated: SimulatedFleet,
    start_s: float,
    steady_s: tuple[float, float],
    served: ServedPart,
) -> list[_PoolFigures]:
    fleet, figures = simulated.fleet, []
    edges_s = np.array([start_s, *steady_s, max(fleet.now_s, steady_s[1])])
    for pool, members in zip(plan.pools, simulated.pools, strict=True):
        replicas = [fleet.replicas[index] for index in members.members]
        paid_parts_s = sum(
            (paid_s(fleet, index, edges_s) for index in members.members), np.zeros(3)
        )
        parts = sum(
            (replica.tally.history.between(edges_s) for replica in replicas), np.zeros((3, 3))
        )
        full = pool.full_batch(fleet.log.requests)
        whole_run = _Period(
            paid_s=float(np.sum(paid_parts_s)),
            busy_s=sum(replica.tally.busy_s for replica in replicas),
            steps_j=sum(replica.tally.energy_j for replica in replicas),
            work_s=_work_s(full, replicas),
        )
        steady = whole_run
        if steady_s[0] > start_s:
            busy_s, steps_j, _ = parts[:, 1]
            work_s = _work_s(full, replicas, served.prompt_fraction, served.further_fraction)
            steady = _Period(float(paid_parts_s[1]), float(busy_s), float(steps_j), work_s)
        figures.append(_PoolFigures(pool, replicas, whole_run, steady))
    return figures


def _idle_w(plan: Deployment, simulated: SimulatedFleet) -> list[float | None]:
    """Idle power of each replica that there ever was."""
    idle_w: list[float | None] = [None] * len(simulated.fleet.replicas)
    for pool, members in zip(plan.pools, simulated.pools, strict=True):
        for index in members.members:
            idle_w[index] = pool.plan.steps.idle_w
    return idle_w


def _work_s(
    full: FullBatch, replicas: list[Scheduler], prompt_fraction: float = 1.0, further: float = 1.0
) -> float:
    """Seconds of full batches that shares of a pool's work take."""
    prompts = sum(replica.tally.prompt_tokens for replica in replicas)
    gaps = sum(float(replica.tally.gap_count.sum()) for replica in replicas)
    return full.work_s(prompt_fraction * prompts, further * gaps)


def _mean_use(pools: list[_PoolFigures]) -> float:
    """Utilisation of all pools, by the time they are paid."""
    paid_s = sum(figures.steady_part.paid_s for figures in pools)
    return min(1.0, sum(figures.steady_part.work_s for figures in pools) / max(paid_s, 1e-12))


def _skips(simulated: SimulatedFleet) -> list[str]:
    """What was left out, by reason."""
    notes, fleet = [], simulated.fleet
    rejected = fleet.log.rejected
    if rejected:
        request, reason = next(iter(rejected.items()))
        notes.append(f"{len(rejected)} requests refused; the first, request {request}, {reason}")
    if fleet.parked_count:
        notes.append(f"{fleet.parked_count} requests found no replica until the end")
    if fleet.is_interrupted:
        notes.append(f"interrupted at {fleet.now_s:.6g} s of simulated time: a partial result")
    return notes


def _spread_replicas(pools: list[_PoolFigures]) -> list[str]:
    """Replicas that no instance of their offer holds."""
    notes = []
    for pool in (figures.pool for figures in pools):
        ranks, devices = pool.plan.options.devices_per_replica, pool.price.devices_per_instance
        if devices is not None and ranks > max(devices, 1):
            notes.append(
                f"a replica of {ranks} devices spans instances of {devices:g} at "
                f"{pool.price.offer}: name an offer whose instances hold it"
            )
    return notes


def _total(values: Iterable[float | None]) -> float | None:
    """Sum; None where one is unknown."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if len(known) == len(listed) else None


def _per(total: float | None, count: float) -> float | None:
    """Share of a total; None where it is unknown, or of nothing."""
    return None if total is None or not count else total / count


def _energy_and_cost(pools: list[_PoolFigures], served: ServedPart) -> Document:
    """Energy and cost of all pools; unknown where that of one is.

    Estimate: every device is paid all the time, and a month is a twelfth of a year like the steady
    part.
    """
    usd = _total(pool.cost_usd(pool.steady_part) for pool in pools)
    steady_j = _total(pool.energy_j(pool.steady_part) for pool in pools)
    carbon_kgco2e = _total(pool.carbon_kgco2e(pool.steady_part) for pool in pools)
    requests = float(served.requests.sum())
    months = served.seconds / SECONDS_PER_MONTH
    offers = dict.fromkeys(pool.pool.price.offer for pool in pools if pool.pool.price.offer)
    return {
        "energy_j": _total(pool.energy_j(pool.whole_run) for pool in pools),
        "energy_j_per_token": _per(steady_j, served.tokens or requests),
        "average_power_w": _per(steady_j, served.seconds),
        "peak_power_w": _total(pool.peak_power_w for pool in pools),
        "cost_usd_per_million_tokens": _per(usd, served.tokens / 1e6),
        "cost_usd_per_1000_requests": _per(usd, requests / 1e3),
        "offer": " + ".join(offers) or None,
        "cost_usd_per_month": _per(usd, months),
        "energy_kwh_per_month": _per(steady_j, JOULES_PER_KWH * months),
        "carbon_kgco2e_per_month": _per(carbon_kgco2e, months),
    }


def _of_sessions(log: RequestLog, usd_per_1000_requests: float | None) -> Document:
    """Figures of a load's sessions, where it has some."""
    if log.requests.session is None:
        return {}
    times = session_times(log)
    requests_per_session = len(log) / len(np.unique(log.requests.session))
    return {
        "sessions": len(times),
        "session_s": distribution(times.e2e_s),
        "cost_usd_per_session": _per(usd_per_1000_requests, 1000 / requests_per_session),
    }


def _counts(pools: list[_PoolFigures]) -> Document:
    """Devices of all pools at the start, and the instances that have them."""
    return {
        "devices": sum(pool.devices for pool in pools),
        "instances": _total(pool.pool.price.instances(pool.devices) for pool in pools),
    }


def _row(
    plan: Deployment,
    simulated: SimulatedFleet,
    index: int,
    figures: _PoolFigures,
    duration_s: float,
) -> Document:
    """A pool's figures, ready for JSON."""
    pool, replicas = figures.pool, simulated.pools[index]
    moves = simulated.transfers if pool.part == "prompts" else None
    return {
        "workload": plan.models[pool.model],
        "device": pool.plan.run.device.name,
        "part": pool.part,
        "engine": pool.plan.engine_name,
        "replicas": pool.replicas,
        "devices": figures.devices,
        "mean_replicas": figures.whole_run.paid_s / duration_s,
        "utilisation_fraction": figures.utilisation_fraction,
        "energy_j": figures.energy_j(figures.whole_run),
        "cost_usd": figures.cost_usd(figures.whole_run),
        "cold_start_s": replicas.start_s or None,
        "replicas_started": replicas.started,
        "replicas_removed": replicas.removed,
        "replicas_lost": replicas.lost,
        "requests_restarted": replicas.restarted_requests,
        "mean_transfer_s": moves.moved_s / moves.count if moves and moves.count else None,
    }
