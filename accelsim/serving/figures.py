"""The figures of a simulated fleet: rates, energy, cost, and each pool's part of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from accelsim import __version__
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.serving.curves import load_curves
from accelsim.serving.deployment import Deployment, PoolPlan, SimulatedFleet
from accelsim.serving.measures import (
    RequestTimes,
    distribution,
    gap_distribution,
    occupancy,
    trust,
)
from accelsim.serving.memory_capacity import FullBatch
from accelsim.serving.result import ServingResult
from accelsim.serving.schedulers.base import Scheduler

#: Times of requests whose distributions are told.
_TIMES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")


@frozen(eq=False)
class _PoolFigures:
    """What a pool did.

    Attributes:
        pool: Its plan.
        replicas: All replicas it ever had.
        paid_s: Seconds that all of them were paid.
        work_s: Seconds of full batches that their work takes.
    """

    pool: PoolPlan
    replicas: list[Scheduler]
    paid_s: float
    work_s: float

    @property
    def utilisation_fraction(self) -> float:
        return min(1.0, self.work_s / max(self.paid_s, 1e-12))

    @property
    def busy_s(self) -> float:
        return sum(one.tally.busy_s for one in self.replicas)

    @property
    def energy_j(self) -> float | None:
        """Energy of steps and of the idle time between them; None where unknown."""
        idle_w = self.pool.plan.steps.idle_w
        if idle_w is None:
            return None
        steps_j = sum(one.tally.energy_j for one in self.replicas)
        return steps_j + idle_w * max(self.paid_s - self.busy_s, 0.0)

    @property
    def peak_power_w(self) -> float | None:
        idle_w = self.pool.plan.steps.idle_w
        if idle_w is None:
            return None
        return sum(max(one.tally.peak_power_w, idle_w) for one in self.replicas)

    @property
    def cost_usd(self) -> float | None:
        """What all devices cost while they are paid; None where the price is unknown."""
        usd_per_hour = self.pool.price.usd_per_hour
        if usd_per_hour is None:
            return None
        devices = self.pool.plan.options.devices_per_replica
        return usd_per_hour * devices * self.paid_s / SECONDS_PER_HOUR


def result_of(
    plan: Deployment,
    done: SimulatedFleet,
    *,
    load: Mapping[str, Any],
    seed: int,
    is_closed: bool,
) -> ServingResult:
    """The result of a simulation.

    Args:
        plan: The fleet.
        done: Its simulation.
        load: What the load was, for the inputs.
        seed: Of the random numbers.
        is_closed: Whether users wait for their answers.
    """
    fleet, first = done.fleet, plan.pools[0]
    log = fleet.log
    times = RequestTimes.of(log)
    arrived = log.column("arrival_s")
    start_s = float(np.nanmin(arrived))
    arrived = arrived[arrived <= fleet.now_s]  # all, unless interrupted
    came = len(arrived)
    duration_s = max(fleet.now_s - start_s, 1e-12)
    tokens = int(times.output_tokens.sum())
    pools = _pools(plan, done, start_s)
    span_s = max(float(arrived.max(initial=start_s)) - start_s, 1e-12)
    offered = max(one.work_s * duration_s / (span_s * max(one.paid_s, 1e-12)) for one in pools)
    saturated, notes = trust(times, offered, is_closed=is_closed)
    replicas = fleet.replicas
    return ServingResult(
        workload=first.plan.run.workload.name,
        device=first.plan.run.device.name,
        replicas=first.replicas,
        engine=first.plan.engine_name,
        plan=first.plan.to_dict(),
        requests=came,
        completed=len(times),
        duration_s=duration_s,
        output_tokens_per_s=tokens / duration_s,
        **_of_requests(plan, times, came, duration_s),
        itl_s=gap_distribution(replicas),
        kv_occupancy_fraction=occupancy(replicas),
        utilisation_fraction=_mean_use(pools),
        preemptions=sum(replica.tally.preemption_count for replica in replicas),
        **_energy(pools, duration_s, tokens or len(times)),
        **_cost(pools, tokens, len(times)),
        saturated=saturated,
        seed=seed,
        pools=tuple(
            _row(plan, done, place, figures, duration_s) for place, figures in enumerate(pools)
        ),
        log=log,
        curves=load_curves(fleet, start_s, _idle_w(plan, done)),
        runs={"further": first.plan.run, "prompts": _prompts(plan).plan.run},
        inputs={"load": load, "run": first.plan.run.to_dict(), "options": asdict(plan.options)},
        provenance=replace(first.plan.run.provenance, version=__version__, seed=seed),
        warnings=(*_skips(done), *notes),
    )


def _of_requests(plan: Deployment, times: RequestTimes, came: int, duration_s: float) -> Document:
    """Rates of requests, and distributions of their times."""
    slo = plan.options.slo
    met = None if slo.is_empty else times.met(slo)
    return {
        "throughput_requests_per_s": len(times) / duration_s,
        "goodput_requests_per_s": None if met is None else met / duration_s,
        "slo_attainment_fraction": None if met is None else met / max(came, 1),
        **{name: distribution(getattr(times, name)) for name in _TIMES},
    }


def _prompts(plan: Deployment) -> PoolPlan:
    """The pool that computes the prompts of the first model."""
    return next((pool for pool in plan.pools if pool.part == "prompts"), plan.pools[0])


def _pools(plan: Deployment, done: SimulatedFleet, start_s: float) -> list[_PoolFigures]:
    fleet, found = done.fleet, []
    for pool, members in zip(plan.pools, done.pools, strict=True):
        replicas = [fleet.replicas[place] for place in members.members]
        paid_s = sum(fleet.paid_time_s(place, start_s) for place in members.members)
        work_s = _work_s(pool.full_batch(fleet.log.asked), replicas)
        found.append(_PoolFigures(pool, replicas, paid_s, work_s))
    return found


def _idle_w(plan: Deployment, done: SimulatedFleet) -> list[float | None]:
    """Idle power of each replica that there ever was."""
    found: list[float | None] = [None] * len(done.fleet.replicas)
    for pool, members in zip(plan.pools, done.pools, strict=True):
        for place in members.members:
            found[place] = pool.plan.steps.idle_w
    return found


def _work_s(full: FullBatch, replicas: list[Scheduler]) -> float:
    """Seconds of full batches that a pool's work takes."""
    prompts = sum(one.tally.prompt_tokens for one in replicas)
    further = sum(float(one.tally.gap_count.sum()) for one in replicas)
    return full.work_s(prompts, further)


def _mean_use(pools: list[_PoolFigures]) -> float:
    """Utilisation of all pools, by the time they are paid."""
    paid_s = sum(one.paid_s for one in pools)
    return min(1.0, sum(one.work_s for one in pools) / max(paid_s, 1e-12))


def _skips(done: SimulatedFleet) -> list[str]:
    """What was left out, by reason."""
    notes, fleet = [], done.fleet
    rejected = fleet.log.rejected
    if rejected:
        first, reason = next(iter(rejected.items()))
        notes.append(f"{len(rejected)} requests refused; the first, request {first}, {reason}")
    if fleet.parked_count:
        notes.append(f"{fleet.parked_count} requests found no replica until the end")
    if fleet.is_interrupted:
        notes.append(f"interrupted at {fleet.now_s:.6g} s of simulated time: a partial result")
    return notes


def _energy(pools: list[_PoolFigures], duration_s: float, count: int) -> Document:
    """Energy of all pools; unknown where that of one is."""
    names = ("energy_j", "energy_j_per_token", "average_power_w", "peak_power_w")
    energies = [one.energy_j for one in pools]
    peaks = [one.peak_power_w for one in pools]
    if None in energies:
        return dict.fromkeys(names)
    energy, peak = (sum(filter(None, figures)) for figures in (energies, peaks))
    values = (energy, energy / count if count else None, energy / duration_s, peak)
    return dict(zip(names, values, strict=True))


def _cost(pools: list[_PoolFigures], tokens: int, requests: int) -> Document:
    """USD per million generated tokens and per 1,000 requests, every device paid all the time."""
    offers = dict.fromkeys(one.pool.price.offer for one in pools if one.pool.price.offer)
    cost: Document = {
        "cost_usd_per_million_tokens": None,
        "cost_usd_per_1000_requests": None,
        "offer": " + ".join(offers) or None,
    }
    paid = [one.cost_usd for one in pools]
    if None in paid:
        return cost
    usd = sum(filter(None, paid))
    if tokens:
        cost["cost_usd_per_million_tokens"] = 1e6 * usd / tokens
    if requests:
        cost["cost_usd_per_1000_requests"] = 1e3 * usd / requests
    return cost


def _row(
    plan: Deployment, done: SimulatedFleet, place: int, figures: _PoolFigures, duration_s: float
) -> Document:
    """A pool's figures, ready for JSON."""
    pool, scaler, outages = figures.pool, done.scalers.get(place), done.outages.get(place)
    moves = done.transfers if pool.part == "prompts" else None
    return {
        "workload": plan.models[pool.model],
        "device": pool.plan.run.device.name,
        "part": pool.part,
        "engine": pool.plan.engine_name,
        "replicas": pool.replicas,
        "mean_replicas": figures.paid_s / duration_s,
        "utilisation_fraction": figures.utilisation_fraction,
        "energy_j": figures.energy_j,
        "cost_usd": figures.cost_usd,
        "cold_start_s": done.pools[place].start_s or None,
        "replicas_started": 0 if scaler is None else scaler.started,
        "replicas_removed": 0 if scaler is None else scaler.removed,
        "replicas_lost": 0 if outages is None else outages.losses,
        "requests_restarted": 0 if outages is None else outages.restarted_requests,
        "mean_transfer_s": moves.moved_s / moves.count if moves and moves.count else None,
    }
