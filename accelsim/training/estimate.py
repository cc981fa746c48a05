"""Training on many devices: one plan, or the best one found, with its time, memory, energy, cost.

`train` is the door. It resolves the run, scores or searches plans, simulates the chosen one and
returns a `TrainingEstimate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.cost.memory import memory_short
from accelsim.dtype import Dtype
from accelsim.economics.carbon import carbon_kgco2e
from accelsim.economics.device_price import DevicePrice, device_price
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.estimation.evidence import POWER_LOG_SIGMA, Evidence
from accelsim.estimation.options import PriceChoice, RunOptions, options_and_price, run_options
from accelsim.estimation.passes import check_effect
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result
from accelsim.training.iteration import Iteration
from accelsim.training.length import RunLength, TrainingRun, checkpoint_bytes, training_run
from accelsim.training.place import training_setup
from accelsim.training.plan import ParallelismPlan, check_model, parse_plan, plan_on
from accelsim.training.score import TIME_PARTS
from accelsim.training.setup import Conditions, TrainingPlace, TrainingSetup
from accelsim.training.simulated_iteration import simulate_iteration
from accelsim.training.trust import (
    fit_probability,
    iteration_evidence,
    iteration_log_sigma,
    learned_notes,
    memory_log_sigma,
    row_spreads,
)
from accelsim.workloads.model import Workload

if TYPE_CHECKING:
    from torch.nn import Module

    from accelsim.simulation.timeline import Timeline
    from accelsim.training.search import Search

_INTERVAL_LEVEL = 0.9
#: Forward passes whose arithmetic a forward and a backward pass have: published figures count so.
_MODEL_PASSES = 3.0
#: The same where weights stay as they are and have no gradients.
_ADAPTER_PASSES = 2.0
_ABOUT = frozenset({"inputs", "provenance", "warnings", "iteration"})
_LENGTH = (
    "time_to_train_s",
    "time_to_train_low_s",
    "time_to_train_high_s",
    "total_energy_j",
    "total_cost_usd",
    "total_carbon_kgco2e",
    "expected_failures",
    "goodput_fraction",
)
_SEARCH = ("plans", "pareto", "considered", "rejected", "search_s")
_FEWER = "{:,} of the {:,} devices: no plan on all of them is faster"
_CUT_SHORT = "the search was interrupted: the best of the first {:,} plans"
#: Figures with an interval, with how much of the time's spread and which of their own they have.
_SPREADS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("iteration_s", "samples_per_s", "tokens_per_s", "mfu_fraction"), (1.0, 0.0)),
    **dict.fromkeys(("model_flop_per_s_per_device", "cost_usd"), (1.0, 0.0)),
    "hardware_flop_per_s_per_device": (1.0, 0.0),
    "energy_j": (1.0, POWER_LOG_SIGMA),
    "carbon_kgco2e": (1.0, POWER_LOG_SIGMA),
    "average_power_w": (0.0, POWER_LOG_SIGMA),
}
#: The same of a whole run.
_OF_RUN: Mapping[str, tuple[float, float]] = {
    "total_cost_usd": (1.0, 0.0),
    "total_energy_j": (1.0, POWER_LOG_SIGMA),
    "total_carbon_kgco2e": (1.0, POWER_LOG_SIGMA),
}


@frozen(repr=False)
class TrainingEstimate(Result):
    """What training takes; unknown figures are None.

    Attributes:
        workload: Workload name.
        cluster: Cluster name; None for one device.
        device: Device name.
        device_count: Devices.
        plan: Fields of the `ParallelismPlan`, its microbatches and the batch.
        precision: Precision policy.
        iteration_s: One iteration: forward, backward and update of the global batch.
        iteration_low_s: Lower end of its interval.
        iteration_high_s: Upper end.
        interval_level: Probability the interval is meant to hold.
        samples_per_s: Samples (sequences) per second.
        tokens_per_s: Tokens per second; None where there are none.
        mfu_fraction: Model FLOP per second over the devices' peak at this precision.
        model_flop_per_s_per_device: Model FLOP per second of one device.
        hardware_flop_per_s_per_device: The same with what recomputation does again.
        memory_bytes: Memory of the worst rank.
        device_memory_bytes: Memory of its device.
        memory_low_bytes: Lower end of its interval.
        memory_high_bytes: Upper end.
        worst_rank: That rank.
        fits: Whether it is within the device's memory.
        fit_probability_fraction: Probability that it is.
        memory: Its memory by part.
        time_s: Exposed seconds of an iteration by part; they sum to `iteration_s`. `other` is what
            devices wait for operators to be issued and inputs to be copied.
        energy_j: Energy of an iteration: devices, and hosts and site where they are known.
        average_power_w: Its mean power.
        counts_hosts: Whether energy, power and carbon are those of hosts, too.
        cost_usd: Price of an iteration.
        carbon_kgco2e: Carbon of its energy in the offer's region; None where unknown.
        node_count: Servers that the devices fill; None for one device.
        offer: Price used, provider/region/instance[:kind].
        tier: "spec", "fitted" or "measured".
        evidence: What it rests on, and how far measured runs like it were off.
        time_to_train_s: Whole run, failures and checkpoints included; None without a length.
        time_to_train_low_s: Lower end of its interval.
        time_to_train_high_s: Upper end.
        total_energy_j: Energy of the run.
        total_cost_usd: Price of the run.
        total_carbon_kgco2e: Carbon of its energy.
        expected_failures: Failures and preemptions expected.
        goodput_fraction: Share of the run's time that moves the model ahead.
        plans: Best plans of a search with their figures, best first; None without a search.
        pareto: Those that no other beats in time, memory and energy together, as simulated.
        trainers: What trainers take for the best plans, fastest first, which are tied with the
            fastest and which was chosen; empty where one is named.
        considered: Plans scored.
        rejected: Plans that cannot run, by reason.
        search_s: Time the search took.
        inputs: What was asked, resolved.
        provenance: Version of accelsim and content of what it was made with.
        warnings: What to know before trusting the figures.
        iteration: The simulated iteration, for its timeline.
    """

    kind: ClassVar[str] = "training"
    nested: ClassVar[frozenset[str]] = frozenset(
        {"plan", "memory", "time_s", "evidence", "plans", "pareto", "trainers", "rejected"}
    )

    workload: str
    cluster: str | None
    device: str
    device_count: int
    plan: Values
    precision: str
    iteration_s: float
    iteration_low_s: float
    iteration_high_s: float
    interval_level: float
    samples_per_s: float
    tokens_per_s: float | None
    mfu_fraction: float | None
    model_flop_per_s_per_device: float
    hardware_flop_per_s_per_device: float
    memory_bytes: float
    device_memory_bytes: float
    memory_low_bytes: float
    memory_high_bytes: float
    worst_rank: int
    fits: bool
    fit_probability_fraction: float
    memory: Mapping[str, float]
    time_s: Mapping[str, float]
    energy_j: float | None
    average_power_w: float | None
    counts_hosts: bool
    cost_usd: float | None
    carbon_kgco2e: float | None
    node_count: int | None
    offer: str | None
    tier: str
    evidence: Evidence
    time_to_train_s: float | None = None
    time_to_train_low_s: float | None = None
    time_to_train_high_s: float | None = None
    total_energy_j: float | None = None
    total_cost_usd: float | None = None
    total_carbon_kgco2e: float | None = None
    expected_failures: float | None = None
    goodput_fraction: float | None = None
    plans: tuple[Values, ...] | None = None
    pareto: tuple[Values, ...] | None = None
    trainers: tuple[Values, ...] | None = None
    considered: int | None = None
    rejected: Mapping[str, int] | None = None
    search_s: float | None = None
    inputs: Values = field(default_factory=dict, compare=False)
    provenance: Provenance = field(default_factory=lambda: Provenance(""), compare=False)
    warnings: tuple[str, ...] = ()
    iteration: Iteration | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        where = f"{self.device_count} x {self.device}"
        return f"<TrainingEstimate: {self.workload} on {where}, {self.iteration_s:.4g} s>"

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures by name, with their intervals."""
        level = self.interval_level
        metrics = dict(self._spread(_SPREADS))
        low, high = self.memory_low_bytes, self.memory_high_bytes
        metrics["memory_bytes"] = Metric(self.memory_bytes, low, high, level)
        if self.time_to_train_s is not None:
            ends = (self.time_to_train_low_s, self.time_to_train_high_s)
            metrics["time_to_train_s"] = Metric(self.time_to_train_s, *ends, level)
            metrics |= self._spread(_OF_RUN)
        return metrics

    def _spread(self, spreads: Mapping[str, tuple[float, float]]) -> Iterator[tuple[str, Metric]]:
        """Figures; what goes with the time has its spread, and with the power that of powers.

        Estimate: errors of time and of power are independent, so that their spreads add in
        quadrature.
        """
        log_time = math.log(self.iteration_high_s / self.iteration_s)
        for name, (share, own_sigma) in spreads.items():
            value = getattr(self, name)
            if value is None:
                yield name, Metric(None)
                continue
            spread = math.exp(math.hypot(share * log_time, Z90 * own_sigma))
            yield name, Metric(value, value / spread, value * spread, self.interval_level)

    @property
    def timeline(self) -> Timeline | None:
        """Tasks of the iteration; None where it was not recorded or has a closed form alone."""
        return None if self.iteration is None else self.iteration.timeline

    def usd_per_sample(self) -> float | None:
        """Price of a sample; None where unknown."""
        batch = self.iteration_s * self.samples_per_s
        return None if self.cost_usd is None else self.cost_usd / batch

    def figures(self) -> Document:
        """Flat figures and lists, ready for JSON; a length's and a search's where there is one."""
        left_out = set() if self.time_to_train_s is not None else set(_LENGTH)
        left_out |= set() if self.plans is not None else {*_SEARCH, "trainers"}
        names = [f.name for f in fields(self) if f.name not in _ABOUT | left_out]
        return {name: _plain(getattr(self, name)) for name in names} | {
            "evidence": self.evidence.to_dict()
        }


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


@checked
def train(
    workload: str | Path | Workload | Module,
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    plan: ParallelismPlan | str | None = None,
    search: bool = False,
    length: RunLength | None = None,
    conditions: Conditions | None = None,
    check_memory: bool = True,
    record: bool = False,
    report: Callable[..., None] | None = None,
    **keywords: Any,
) -> TrainingEstimate:
    """Estimate training of a model on many devices.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        options: What runs; defaults where None.
        price: Which price; the cheapest on-demand offer where None.
        plan: Plan, or words such as "tp=4,pp=2"; a dp that is not given takes the devices left.
        search: Look for the best plan; fields that `plan` names stay.
        length: How long the run is, with failures and checkpoints; None for one iteration.
        conditions: Stragglers, data loading, shared networks, reserves.
        check_memory: Whether a plan that does not fit is an error; else `fits` says so.
        record: Whether to keep the timeline.
        report: Called with plans done, plans in all and a label while a search goes on.
        keywords: Fields of `TrainingPlace`, of `RunOptions`, of the options it holds and of
            `PriceChoice`.

    Raises:
        DoesNotFitError: If the plan needs more memory than a device has: bytes short, rank, and the
            nearest plan that fits.
        InputError: If a name, size or choice is wrong; its subclasses say which.
    """
    names = [spec.name for spec in fields(TrainingPlace)]
    place = TrainingPlace(**{name: keywords.pop(name, None) for name in names})
    options, price = options_and_price(options, price, keywords)
    options = run_options(options, {"mode": "training"})
    plan_fields = _plan_fields(plan, search)
    setup = training_setup(workload, options, place, conditions, plan_fields.get("lora_rank"))
    if place.global_batch is None and options.shape.batch is None:
        batch = _least_batch(plan_fields, setup.device_count)
        setup = replace(setup, run=replace(setup.run, batch=batch))
    check_effect(options.model, setup.run)
    cost = device_price(setup.run.device, price)
    if not search:
        plan = plan_on(setup.device_count, {"recompute": setup.run.stack.recompute} | plan_fields)
        check_model(plan, setup.run.workload, setup.run.seq_len)
        return _estimate(setup, plan, cost, length, check_memory, record)
    from accelsim.training.search import SearchRequest
    from accelsim.training.trainers import find_plan

    request = SearchRequest(plan_fields, cost.usd_per_hour, report)
    best_of_search, used, trainers = find_plan(setup, workload, options, place, request)
    result = _estimate(used, best_of_search.best, cost, length, check_memory, record)
    figures = {name: getattr(best_of_search, name) for name in _SEARCH} | {"trainers": trainers}
    warnings = [*result.warnings, *_search_notes(best_of_search, used, setup)]
    return replace(result, **figures, warnings=tuple(warnings))


def _search_notes(
    best_of_search: Search, used: TrainingSetup, setup: TrainingSetup
) -> Iterator[str]:
    if not best_of_search.is_complete:
        yield _CUT_SHORT.format(best_of_search.considered)
    if used.device_count < setup.device_count:
        yield _FEWER.format(used.device_count, setup.device_count)


def _plan_fields(plan: ParallelismPlan | str | None, search: bool) -> Document:
    """Fields that a plan names; a search takes them in words."""
    if isinstance(plan, ParallelismPlan):
        if search:
            allowed = "words for the fields to keep, as a search changes the others"
            raise InvalidValueError("plan", str(plan), allowed, 'Such as plan="tp=4,zero=1".')
        return {spec.name: getattr(plan, spec.name) for spec in fields(plan)}
    return parse_plan(plan or "")


def _least_batch(plan_fields: Values, device_count: int) -> int:
    """One microbatch of every data-parallel rank of a plan, of all devices where none is named."""
    ranks = math.prod(plan_fields.get(name, 1) for name in ("tp", "pp", "cp"))
    copies = plan_fields.get("dp", device_count // max(ranks, 1))
    return max(int(copies * plan_fields.get("microbatch", 1)), 1)


def _estimate(
    setup: TrainingSetup,
    plan: ParallelismPlan,
    price: DevicePrice,
    length: RunLength | None,
    check_memory: bool,
    record: bool,
) -> TrainingEstimate:
    run = setup.run
    iteration = simulate_iteration(setup, plan, run.batch, record=record)
    memory = iteration.memory_bytes
    fits = memory <= setup.capacity_bytes
    if check_memory and not fits:
        raise _does_not_fit(setup, plan, iteration)
    seconds = iteration.iteration_s
    spread = math.exp(Z90 * iteration_log_sigma(iteration))
    memory_spread = math.exp(Z90 * memory_log_sigma(iteration))
    low, high = seconds / spread, seconds * spread
    figures = _rates(iteration, price)
    if length is not None:
        spent = figures["energy_j"], figures["cost_usd"], figures["carbon_kgco2e"]
        iteration_figures = TrainingRun(seconds, low, high, *spent, checkpoint_bytes(iteration))
        figures |= training_run(length, iteration_figures, run, setup.device_count)
    evidence = iteration_evidence(iteration)
    around = () if setup.cluster is None else setup.cluster.warnings
    notes = (*run.workload.notices, *around, *evidence.warnings, *price.notes)
    counts = {"microbatch_count": iteration.microbatch_count, "global_batch": run.batch}
    return TrainingEstimate(
        workload=run.workload.name,
        cluster=None if setup.cluster is None else setup.cluster.name,
        device=run.device.name,
        device_count=setup.device_count,
        plan=plan.to_dict() | counts,
        precision=run.precision.name,
        iteration_s=seconds,
        iteration_low_s=low,
        iteration_high_s=high,
        interval_level=_INTERVAL_LEVEL,
        memory_bytes=memory,
        device_memory_bytes=run.device.memory_bytes,
        memory_low_bytes=memory / memory_spread,
        memory_high_bytes=memory * memory_spread,
        worst_rank=iteration.worst_rank,
        fits=fits,
        fit_probability_fraction=fit_probability(iteration),
        memory={name: float(column[0]) for name, column in iteration.scores.memory.items()},
        time_s={name: iteration.time_s[name] for name in TIME_PARTS},
        counts_hosts=setup.host_w is not None,
        node_count=_node_count(setup),
        offer=price.offer,
        tier=row_spreads(iteration).tier.value,
        evidence=evidence,
        inputs=_inputs(setup, plan),
        provenance=run.provenance,
        warnings=(*notes, *learned_notes(iteration)),
        iteration=iteration,
        **figures,
    )


def _rates(iteration: Iteration, price: DevicePrice) -> Document:
    """Rates, energy and cost of an iteration.

    Model FLOP are three times those of the forward pass, without recomputation, and MFU is their
    share of the peak (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
    """
    setup, plan, seconds = iteration.setup, iteration.plan, iteration.iteration_s
    batch, seq_len = setup.run.batch, setup.run.seq_len
    passes = _MODEL_PASSES if plan.lora_rank is None else _ADAPTER_PASSES
    samples_per_s = batch / plan.microbatch / seconds / setup.device_count
    per_device = passes * iteration.forward_flop * samples_per_s
    energy, usd = iteration_energy_j(iteration), price.usd_per_hour
    return {
        "samples_per_s": batch / seconds,
        "tokens_per_s": batch / seconds * seq_len if seq_len else None,
        "mfu_fraction": _mfu(setup, per_device),
        "model_flop_per_s_per_device": per_device,
        "hardware_flop_per_s_per_device": per_device + iteration.again_flop * samples_per_s,
        "energy_j": energy,
        "average_power_w": None if energy is None else energy / seconds,
        "cost_usd": None if usd is None else usd * setup.device_count * seconds / SECONDS_PER_HOUR,
        "carbon_kgco2e": _carbon(setup, energy, price),
    }


def _carbon(setup: TrainingSetup, energy_j: float | None, price: DevicePrice) -> float | None:
    """Carbon of an energy in the offer's region, whose site's overhead takes the place of that of
    the conditions; None where either is unknown.
    """
    if energy_j is None or price.kgco2e_per_kwh is None:
        return None
    return carbon_kgco2e(energy_j / setup.conditions.pue, price.kgco2e_per_kwh)


def _node_count(setup: TrainingSetup) -> int | None:
    """Servers that the devices fill."""
    cluster = setup.cluster
    return None if cluster is None else math.ceil(setup.device_count / cluster.node.device_count)


def _inputs(setup: TrainingSetup, plan: ParallelismPlan) -> Document:
    inputs = setup.run.to_dict() | {"plan": str(plan), "device_count": setup.device_count}
    if setup.cluster is not None:
        inputs["cluster"] = setup.cluster.name
    if setup.conditions != Conditions():
        inputs["conditions"] = asdict(setup.conditions)
    return inputs


def _mfu(setup: TrainingSetup, flop_per_s: float) -> float | None:
    """Share of the peak; of FP32's where a narrower format is slower, as FP16 is on boards of games
    before Volta, whose products libraries run in FP32.
    """
    peaks, compute = setup.run.device.peak_flop_per_s, setup.run.precision.compute
    peak = peaks.get(compute) or peaks.get(Dtype.FP32)
    if compute is not Dtype.FP64:
        peak = max(peak or 0.0, peaks.get(Dtype.FP32) or 0.0)
    return None if not peak else flop_per_s / peak


def iteration_energy_j(iteration: Iteration) -> float | None:
    """Energy of devices, hosts and site in one iteration; None where the devices' is unknown."""
    dynamic_j = float(iteration.scores.energy_j[0])
    energy_j: float | None = iteration.setup.energy_j(dynamic_j, iteration.iteration_s)
    return energy_j


def _does_not_fit(
    setup: TrainingSetup, plan: ParallelismPlan, iteration: Iteration
) -> DoesNotFitError:
    from accelsim.training.nearest import fitting_words

    remedy = f"Rank {iteration.worst_rank} is the worst. {fitting_words(setup, plan)}"
    return memory_short(setup.run.device, iteration.memory_bytes, setup.capacity_bytes, remedy)
