"""What a recommendation runs where: one service or job on instances of one offer.

The one thing that `accelsim.handover` reads of a plan, of a load that is served and of a training
run, to write what carries it out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from accelsim.capacity.answer import CapacityPlan
from accelsim.capacity.scenario import BatchJob, Scenario, Service, TrainingJob
from accelsim.catalog.workloads import workload
from accelsim.economics.offer import Offer
from accelsim.economics.price import PriceBook
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.serving.options import ServingOptions
from accelsim.serving.result import ServingResult
from accelsim.training.estimate import TrainingEstimate
from accelsim.training.plan import parse_plan, plan_on

#: Settings of a replica that an engine's line states, of those in a plan.
_OF_REPLICA = ("tp", "pp", "ep", "dp", "max_seqs", "max_batch_tokens", "kv_format")
#: Settings that a line states where the caller did.
_OF_ROW = (*_OF_REPLICA, "replicas", "max_context", "max_batch", "requests_per_s")
#: Options of a server that the settings say, or that are no setting of an engine.
_WRITTEN = frozenset(
    (
        *(*_OF_REPLICA, *("memory_fraction", "kv_blocks", "prefix_cache")),
        *("engine", "replicas", "cluster", "router", "slo", "outages", "provisioning_s", "storage"),
    )
)
_WHERE_ASKED = ("memory_fraction", "kv_blocks", "prefix_cache")


@frozen
class Assignment:
    """A service or job as it is carried out.

    Attributes:
        name: Of the service or job.
        task: Whether it serves requests, trains, or answers samples by a deadline.
        workload: Model.
        device: Device of every rank.
        devices: Devices in all.
        software: Engine, trainer or stack, with its version after a blank where it is known.
        precision: Precision policy.
        settings: Of an engine: replicas, tp, pp, ep, dp, max_seqs, max_batch_tokens, max_context,
            kv_format and what else was asked for. Of a trainer: fields of its `ParallelismPlan`,
            global_batch, seq_len, steps, optimizer.
        offer: provider/region/instance[:kind]; None without a price list's offer.
        instances: Instances of the offer.
        cost_usd: Of a month of a service, of a run of a job; None where unknown.
        unsaid: Options that were asked for and that no line says.
    """

    name: str
    task: Literal["serve", "train", "batch"]
    workload: str
    device: str
    devices: int
    software: str
    precision: str
    settings: Values
    offer: str | None = None
    instances: int | None = None
    cost_usd: float | None = None
    unsaid: tuple[str, ...] = ()

    @property
    def place(self) -> Offer | None:
        """The offer; None without one, or for hardware of one's own."""
        if self.offer is None or self.offer.partition("/")[0] == "owned":
            return None
        return PriceBook.load().find(self.offer).offer

    @property
    def instance_devices(self) -> int:
        """Whole devices of an instance: those of the offer, else an even share of all."""
        place = self.place
        if place is not None and place.device_count:
            return max(1, int(place.device_count))
        return max(1, math.ceil(self.devices / (self.instances or 1)))


def of_serving(result: ServingResult, name: str = "service") -> Assignment:
    """The assignment of a load that is served, of the first of its pools.

    Args:
        result: The answer of `serve` or `find`.
        name: What to call it.
    """
    options, usual = result.inputs["options"], asdict(ServingOptions())
    settings = {field: result.plan[field] for field in _OF_REPLICA if field in result.plan}
    settings |= {field: options[field] for field in _WHERE_ASKED if options.get(field) is not None}
    settings["replicas"] = result.replicas
    if result.log is not None and len(result.log):
        settings["max_context"] = result.log.requests.longest
    return Assignment(
        name,
        "serve",
        result.workload,
        result.device,
        int(result.pools[0]["devices"]) if result.pools else result.devices,
        result.engine,
        str(result.plan["precision"]),
        settings,
        result.offer,
        result.instances,
        result.cost_usd_per_month,
        tuple(
            n for n in usual if n not in _WRITTEN and options.get(n, usual[n]) not in (usual[n], [])
        ),
    )


def of_training(result: TrainingEstimate, name: str = "training") -> Assignment:
    """The assignment of a training run.

    Args:
        result: The answer of `train`.
        name: What to call it.
    """
    run = result.inputs
    settings = dict(result.plan) | {
        field: run[field] for field in ("seq_len", "optimizer") if run.get(field) is not None
    }
    if result.time_to_train_s is not None:
        goodput = result.goodput_fraction or 1.0
        settings["steps"] = max(1, round(result.time_to_train_s * goodput / result.iteration_s))
    return Assignment(
        name,
        "train",
        result.workload,
        result.device,
        result.device_count,
        str(run.get("stack", "")),
        result.precision,
        settings,
        result.offer,
        result.node_count or 1,
        result.total_cost_usd,
    )


def of_plan(plan: CapacityPlan) -> list[Assignment]:
    """The assignments of a plan's recommended fleet.

    Args:
        plan: The plan.
    """
    best = plan.recommended
    return [] if best is None else of_rows(plan.scenario, best.placement)


def of_rows(scenario: Scenario, rows: Sequence[Values]) -> list[Assignment]:
    """The assignments of a fleet's placement, one for each row.

    Args:
        scenario: What was asked.
        rows: The placement.
    """
    tasks = {task.name: task for task in (*scenario.services, *scenario.jobs)}
    return [_placed(tasks[row.get("service") or row["job"]], row) for row in rows]


def _placed(work: Service | TrainingJob | BatchJob, row: Values) -> Assignment:
    """A service or job of a row that says its device, offers, layout, engine or trainer."""
    offers = row["offers"]
    precision = row.get("precision") or work.run.get("precision") or ""
    task: Literal["serve", "train", "batch"] = "serve" if isinstance(work, Service) else "batch"
    settings: Document = {name: row[name] for name in _OF_ROW if row.get(name) is not None}
    if isinstance(work, TrainingJob):
        task = "train"
        settings |= _of_job(work, row)
    return Assignment(
        work.name,
        task,
        work.model,
        row["device"],
        row["device_count"],
        str(row.get("engine") or row.get("trainer") or ""),
        str(precision),
        settings,
        offers[0]["offer"],
        row["instance_count"],
        row.get("cost_usd", row["cost_usd_per_month"]),
    )


def _of_job(job: TrainingJob, row: Values) -> Document:
    """Settings of a trainer: the plan's fields, sizes and steps."""
    plan = plan_on(row["device_count"], parse_plan(str(row["plan"])))
    batch = int(row["global_batch"])
    length = job.run.get("seq_len") or workload(job.model).default.seq_len
    samples = job.samples or (job.tokens or 0.0) / max(length, 1)
    return plan.to_dict() | {
        "microbatch_count": plan.microbatch_count(batch),
        "global_batch": batch,
        "seq_len": length,
        "steps": max(1, round(samples / batch)),
        "optimizer": job.run.get("optimizer", "adamw"),
    }
