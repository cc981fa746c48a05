"""Serve a load with a model on devices: the door to request-level simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.economics.device_price import DevicePrice
from accelsim.errors import DoesNotFitError
from accelsim.estimation.options import PriceChoice, RunOptions, options_and_price
from accelsim.estimation.passes import check_effect
from accelsim.estimation.resolution import refuse_unused
from accelsim.plain import Document, Values
from accelsim.result import Metric
from accelsim.serving.deployment import Deployment, Hopeless, PoolPlan, deployment, simulate
from accelsim.serving.figures import result_of
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import ReplicaPlan
from accelsim.serving.replicas.fleet import Progress
from accelsim.serving.result import ServingResult
from accelsim.serving.speculation import USUAL_GUESSES
from accelsim.serving.steps.alone_steps import priced_alone
from accelsim.serving.steps.combined_steps import ScaledSteps
from accelsim.serving.steps.step_times import StepTimes
from accelsim.serving.trust import ServedRun
from accelsim.simulation.randomness import RandomStreams

if TYPE_CHECKING:
    from torch.nn import Module

    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.model import Workload

_OPTION_FIELDS = frozenset(f.name for f in fields(ServingOptions))


@checked
def serve(
    workload: str | Path | Workload | Module,
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
        progress: Called now and then with the requests that have come and the simulated time, from
            0 for each simulation.
        intervals: Also simulate the ends of the 90 % interval of step times with the same random
            numbers, slow ones with the fewest cache blocks that the engine may leave, for the
            intervals of the figures.
        keywords: Fields of `ServingOptions`, `RunOptions` and `PriceChoice`, in place of theirs.

    Raises:
        InputError: If a name, size or choice is wrong, or the model does not fit; its subclasses
            say which.
    """
    served = _with_fields(options or ServingOptions(), keywords)
    chosen, paid = options_and_price(run, price, keywords)
    streams = RandomStreams(seed)
    planned = partial(deployment, workload, device, chosen, options=served, price=paid, steps=steps)
    arrivals, columns, plan = _loaded(planned, arrivals, streams)
    if steps is None:
        plan = priced_alone(plan, len(columns))
    _check_used(served, chosen, plan.pools[0].plan)
    simulated = partial(_simulated, columns, described(arrivals), streams, progress)
    result, is_interrupted = simulated(plan)
    if not intervals or is_interrupted:
        return result
    ends = [_metrics_of(*simulated(end)) for end in _ends(plan)]
    if steps is None and _is_guessing_unsaid(plan):
        guessing = replace(served, speculation=USUAL_GUESSES)
        with suppress(DoesNotFitError):  # the layers that guess
            end = planned(options=guessing, max_context=columns.longest)
            ends.append(_metrics_of(*simulated(end)))
            warning = _unsaid(result.metrics, ends[-1])
            result = replace(result, warnings=(*result.warnings, warning))
    if ends:
        ranges = _intervals(result, [pool.served for pool in plan.pools], *ends)
        result = replace(result, intervals={**ranges, **result.intervals})
    return result


def _with_fields(options: ServingOptions, keywords: Document) -> ServingOptions:
    """Options with those of the keywords that are fields of theirs, which are taken out."""
    names = _OPTION_FIELDS & keywords.keys()
    return replace(options, **{name: keywords.pop(name) for name in names})


def _is_guessing_unsaid(plan: Deployment) -> bool:
    """Whether a fleet's only model has layers that guess tokens, and nobody says if they do."""
    return len(plan.models) == 1 and plan.pools[0].plan.is_guessing_unsaid


def _loaded(
    planned: Callable[..., Deployment], arrivals: Arrivals | RequestColumns, streams: RandomStreams
) -> tuple[Arrivals | RequestColumns, RequestColumns, Deployment]:
    """A load with as many requests as a steady state needs, its requests, and the fleet for them.

    Args:
        planned: Plans the fleet for a longest sequence.
        arrivals: The load.
        streams: Random streams of the run.
    """
    if isinstance(arrivals, RequestColumns):
        return arrivals, arrivals, planned(max_context=arrivals.longest)
    columns = arrivals.columns(streams)
    plan = planned(max_context=columns.longest)
    arrivals = arrivals.steady(plan.inside(arrivals.requests_per_s, columns))
    if arrivals.count != len(columns):
        few, columns = columns, arrivals.columns(streams)
        if columns.longest > few.longest:
            plan = planned(max_context=columns.longest)
    return arrivals, columns, plan


def _ends(plan: Deployment) -> list[Deployment]:
    """The fleet with fast steps and much cache, and with slow ones and little."""
    if not plan.pools[0].plan.steps.log_sigma:
        return []
    return [plan.changed(partial(_scaled, z)) for z in (-Z90, Z90)]


def _unsaid(plain: Mapping[str, Metric], guessing: Mapping[str, Metric]) -> str:
    """That an answer is a range over a model that guesses tokens and one that does not."""
    times = [metrics["tpot_s.mean"].value for metrics in (plain, guessing)]
    without, with_guesses = (
        "unknown" if time_s is None else f"{1e3 * time_s:.3g} ms" for time_s in times
    )
    return (
        f"speculation is not said: TPOT is {without} without it and {with_guesses} with the "
        "model's own layers of multi-token prediction, and the intervals hold both; "
        "--speculate none or 1:0.85:mtp says which"
    )


def _metrics_of(result: ServingResult, is_interrupted: bool) -> Mapping[str, Metric]:
    if is_interrupted:
        raise KeyboardInterrupt
    return result.metrics


def _simulated(
    columns: RequestColumns,
    load: Values,
    streams: RandomStreams,
    progress: Progress | None,
    fleet: Deployment,
) -> tuple[ServingResult, bool]:
    """A fleet under requests, and whether its simulation was interrupted."""
    users = load.get("users") or 0
    simulated = simulate(fleet, columns, users=users, streams=streams, progress=progress)
    result = result_of(fleet, simulated, load=load, seed=streams.seed, is_closed=users > 0)
    return result, simulated.fleet.is_interrupted


#: Options of models that generate tokens.
_OF_TOKENS = (
    "max_batch_tokens",
    "memory_fraction",
    "kv_blocks",
    "prefix_cache",
    "host_cache_bytes",
)


def _check_used(options: ServingOptions, run: RunOptions, plan: ReplicaPlan) -> None:
    """Refuse options that say nothing of such a load, engine or model, by name.

    Raises:
        InvalidValueError: Naming the first.
    """
    check_effect(run.model, plan.run)
    shape = run.shape
    sizes = {"batch": shape.batch, "seq_len": shape.seq_len, "output_len": shape.output_len}
    unused: dict[str, tuple[object, str]]
    unused = {name: (size, "the load says it") for name, size in sizes.items()}
    if plan.is_continuous:
        unused["batch_window_s"] = options.batch_window_s, "batches are never waited for"
    unused |= _unused_of_model(options, plan.run.workload)
    if options.autoscale is None and options.outages is None:
        reason = "no replica starts later"
        usual = ServingOptions().storage
        unused["provisioning_s"] = options.provisioning_s, reason
        unused["storage"] = None if options.storage == usual else options.storage, reason
    refuse_unused(unused)


def _unused_of_model(options: ServingOptions, model: Workload) -> dict[str, tuple[object, str]]:
    """Options, and why a model has no use for them; None for those that are not given."""
    unused: dict[str, tuple[object, str]] = {}
    if not model.autoregressive:
        reason = f"{model.name} generates no tokens"
        unused |= {name: (getattr(options, name) or None, reason) for name in _OF_TOKENS}
    if not model.has_experts and options.ep > 1:
        unused["ep"] = options.ep, f"{model.name} has no experts"
    if options.ep == 1:
        unused["expert_skew"] = options.expert_skew or None, "no ranks share the experts: give ep"
    return unused


def _scaled(z: float, pool: PoolPlan) -> ReplicaPlan:
    """Steps slower by z standard deviations of what they have in common, with the fewest cache
    blocks that the engine may leave; or, below 0, with the most.
    """
    steps, served = pool.plan.steps, pool.served
    spreads = served.common_log_sigma(steps), served.prompt_log_sigma(steps)
    scaled = ScaledSteps(steps, *(math.exp(z * spread) for spread in spreads))
    fewest, most = pool.plan.blocks_range
    return replace(pool.plan, steps=scaled, blocks=fewest if z > 0 else most)


def _intervals(
    result: ServingResult, served: Sequence[ServedRun], *ends: Mapping[str, Metric]
) -> dict[str, tuple[float, float]]:
    """Least and largest of each figure over the ends of the step times' interval, and no narrower
    than its measured like. Estimate: what lies between two ends of step times lies between the
    figures at these ends.
    """
    ranges = {}
    for name, metric in result.metrics.items():
        values = [metric.value, *(end[name].value for end in ends)]
        figures = [value for value in values if value is not None]
        if metric.value is not None and len(figures) == len(values):
            spread = math.exp(Z90 * max(run.least_log_sigma(name) for run in served))
            ranges[name] = (
                min(*figures, metric.value / spread),
                max(*figures, metric.value * spread),
            )
    # ends that are close differ by rounding alone
    return {name: ends for name, ends in ranges.items() if not math.isclose(*ends)}


def simulate_plan(
    plan: ReplicaPlan,
    columns: RequestColumns,
    price: DevicePrice,
    streams: RandomStreams,
    load: Values | None = None,
    hopeless: Hopeless | None = None,
) -> ServingResult:
    """Simulate like replicas under requests.

    Args:
        plan: One replica.
        columns: The requests.
        price: Of one device.
        streams: Random streams of the run.
        load: What the load was, for the result's inputs.
        hopeless: See `accelsim.serving.deployment.simulate`.

    Raises:
        HopelessRunError: If it says so.
    """
    alone = PoolPlan(plan, price, plan.options.replicas)
    fleet = Deployment((alone,), plan.options, (plan.run.workload.name,))
    simulated = simulate(fleet, columns, streams=streams, hopeless=hopeless)
    return result_of(fleet, simulated, load=load or {}, seed=streams.seed, is_closed=False)


def described(arrivals: Arrivals | RequestColumns) -> Document:
    """A load, for a result's inputs."""
    if isinstance(arrivals, RequestColumns):
        return {"requests": len(arrivals)}
    return asdict(arrivals)
