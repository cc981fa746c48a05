"""Which runs to measure before a fleet is rented: those that most lower the expected cost of the
choice, each with its line, its time and its price, and when to stop.

Rents follow times: what a fleet costs is off by as much as the times that it rests on
(`accelsim.confidence.next_run`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from accelsim import __version__
from accelsim.arguments import checked
from accelsim.capacity.answer import FleetAnswer
from accelsim.capacity.assignment import Assignment, of_rows
from accelsim.capacity.plan import plan
from accelsim.capacity.scenario import Scenario, Service, load_scenario
from accelsim.catalog.devices import device
from accelsim.catalog.workloads import workload
from accelsim.confidence.next_run import Alternatives
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.errors import InvalidValueError
from accelsim.estimation.learned import read_learned
from accelsim.frozen import frozen
from accelsim.handover.folder import line_of, repository
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result

#: Time of a run: an engine or trainer starts, and its load becomes steady. Estimate.
_RUN_S = 900.0
_MOST_RUNS = 10
#: Requests of a benchmark in their rate times so many seconds.
_LOAD_S = 300.0


@frozen
class NextRun:
    """A run to make.

    Attributes:
        device: Device that it runs on.
        device_count: Devices that it needs.
        configuration: Layout and software.
        line: What starts it; empty where the program has no list of options.
        benchmark: What measures it, or what to note.
        run_s: Time it takes.
        cost_usd: Price of its instances for that time.
    """

    device: str
    device_count: int
    configuration: str
    line: str
    benchmark: str
    run_s: float
    cost_usd: float


@frozen(repr=False)
class NextRuns(Result):
    """What to measure for a decision.

    Attributes:
        decision: The fleet that is chosen today.
        regret_usd: Expected loss of that choice to the best, over the months.
        saves_usd: What the runs lower it by; 0 where none are proposed.
        months: Months that a choice lasts.
        alternatives: Fleets that were compared: devices, cost a month, its spread.
        runs: Runs to make, all of them; none where the decision is safe: no runs save more than
            they cost.
        inputs: What was asked.
        provenance: Version of accelsim.
        warnings: What to know before trusting it.
    """

    kind: ClassVar[str] = "next-runs"
    nested: ClassVar[frozenset[str]] = frozenset({"alternatives", "runs"})

    decision: str
    regret_usd: float
    saves_usd: float
    months: float
    alternatives: tuple[Values, ...]
    runs: tuple[NextRun, ...]
    inputs: Values = field(default_factory=dict, compare=False)
    provenance: Provenance = field(default_factory=lambda: Provenance(""), compare=False)
    warnings: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures of the decision."""
        return {"regret_usd": Metric(self.regret_usd), "saves_usd": Metric(self.saves_usd)}

    def figures(self) -> Document:
        """Flat figures and lists, ready for JSON."""
        return {
            "decision": self.decision,
            "regret_usd": self.regret_usd,
            "saves_usd": self.saves_usd,
            "months": self.months,
            "is_safe": not self.runs,
            "alternatives": [dict(row) for row in self.alternatives],
            "runs": [asdict(run) for run in self.runs],
        }


@checked
def measure_next(
    scenario: str | Path | Scenario,
    *,
    learned: str | Path | None = None,
    runs: int = 3,
    months: float = 1.0,
    report: Callable[..., None] | None = None,
) -> NextRuns:
    """Runs that most lower the expected cost of a plan's choice.

    Args:
        scenario: A scenario as `accelsim.plan` takes it.
        learned: Profile of runs that were measured (`accelsim.learn`).
        runs: Most runs, 1 to 10.
        months: Months that the fleet is rented.
        report: As in `accelsim.plan`.

    Raises:
        InputError: If a field is wrong, a name is unknown, or no fleet keeps the limits.
    """
    if not 1 <= runs <= _MOST_RUNS:
        raise InvalidValueError("runs", runs, f"1 to {_MOST_RUNS}")
    if months <= 0:
        raise InvalidValueError("months", months, "a number above 0")
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    if learned is not None:
        read_learned(learned)  # refused here, not by each device
        scenario = _with_learned(scenario, str(learned))
    planned = plan(scenario, report=report)
    if planned.recommended is None:
        remedy = "accelsim plan says what would have to give."
        raise InvalidValueError("scenario", scenario.name, "one that some fleet carries", remedy)
    fleets = [planned.recommended, *planned.alternatives]
    alternatives = _alternatives(fleets)
    candidates = [_run(planned.scenario, fleet) for fleet in fleets]
    chosen = alternatives.best_runs(runs, np.array([run.cost_usd / months for run in candidates]))
    regret = alternatives.regret
    return NextRuns(
        decision=_fleet_words(fleets[alternatives.choice]),
        regret_usd=regret * months,
        saves_usd=min(alternatives.saving(chosen), regret) * months if chosen else 0.0,
        months=months,
        alternatives=tuple(_row(fleet) for fleet in fleets),
        runs=tuple(candidates[index] for index in chosen),
        inputs={"scenario": scenario.name, "learned": None if learned is None else str(learned)},
        provenance=Provenance(__version__, scenario.seed),
        warnings=planned.warnings,
    )


def _with_learned(scenario: Scenario, profile: str) -> Scenario:
    """A scenario whose services and jobs know a profile of runs."""
    parts = {
        name: tuple(
            load.model_copy(update={"run": {**load.run, "learned": profile}})
            for load in getattr(scenario, name)
        )
        for name in ("services", "training_jobs", "batch_jobs")
    }
    return scenario.model_copy(update=parts)


def _alternatives(fleets: Sequence[FleetAnswer]) -> Alternatives:
    costs = np.array([fleet.cost_usd_per_month for fleet in fleets])
    sigmas = np.array([fleet.log_sigma for fleet in fleets])
    classes = [str(device(str(fleet.placement[0]["device"])).device_class) for fleet in fleets]
    return Alternatives.of(costs, sigmas, classes)


def _row(fleet: FleetAnswer) -> Document:
    return {
        "fleet": _fleet_words(fleet),
        "cost_usd_per_month": fleet.cost_usd_per_month,
        "log_sigma": fleet.log_sigma,
    }


def _fleet_words(fleet: FleetAnswer) -> str:
    counts: dict[str, int] = {}
    for row in fleet.placement:
        counts[row["device"]] = counts.get(row["device"], 0) + int(row["device_count"])
    return " + ".join(f"{count} {name}" for name, count in counts.items())


def _run(scenario: Scenario, fleet: FleetAnswer) -> NextRun:
    """The run that measures a fleet: its costliest part alone, of a service one replica."""
    costs = [float(row["cost_usd_per_month"]) for row in fleet.placement]
    row = fleet.placement[costs.index(max(costs))]
    (assignment,) = of_rows(scenario, [row])
    replicas = int(row.get("replicas", 1))
    instances = math.ceil(row["instance_count"] / replicas)
    hourly = float(row["offers"][0]["usd_per_hour"]) * instances
    layout = str(row["layout"]).removeprefix(f"{replicas} x ")
    alone = replace(
        assignment,
        devices=max(1, assignment.devices // replicas),
        instances=instances,
        settings={**assignment.settings, "replicas": 1} if replicas > 1 else assignment.settings,
    )
    return NextRun(
        device=assignment.device,
        device_count=alone.devices,
        configuration=" ".join(filter(None, (layout, assignment.software, assignment.precision))),
        line=line_of(alone),
        benchmark=_benchmark(scenario, assignment),
        run_s=_RUN_S,
        cost_usd=hourly * _RUN_S / SECONDS_PER_HOUR,
    )


def _benchmark(scenario: Scenario, assignment: Assignment) -> str:
    """The benchmark of an engine under a replica's share of the load."""
    service = next((s for s in scenario.services if s.name == assignment.name), None)
    engine, settings = assignment.software.partition(" ")[0], assignment.settings
    if service is None or engine not in _BENCHMARKS:
        metric = "iteration_s" if assignment.task == "train" else "latency_s"
        batch = settings.get("global_batch") or settings.get("max_batch", 1)
        return f"{_TABLE} = {assignment.workload},{assignment.device},{batch},{metric},..."
    model = workload(assignment.workload)
    rate = float(settings["requests_per_s"]) / int(settings.get("replicas", 1))
    return _BENCHMARKS[engine].format(
        model=repository(model) or model.name,
        prompt=_mean_tokens(service, "prompt") or model.default.seq_len,
        output=_mean_tokens(service, "output") or model.output_len,
        rate=f"{rate:.3g}",
        count=math.ceil(rate * _LOAD_S),
    )


#: What to note where no engine has a benchmark: a row of a table that `accelsim.learn` reads.
_TABLE = "note in a table: model,device,batch,metric,value"
#: How engines' own benchmarks are asked for a load (vLLM, docs/benchmarking; SGLang,
#: bench_serving): `accelsim.learn` reads what they write.
_BENCHMARKS = {
    "vllm": "vllm bench serve --model {model} --dataset-name random --random-input-len {prompt} "
    "--random-output-len {output} --request-rate {rate} --num-prompts {count} --save-result",
    "sglang": "python -m sglang.bench_serving --backend sglang --model {model} "
    "--dataset-name random --random-input-len {prompt} --random-output-len {output} "
    "--request-rate {rate} --num-prompts {count} --output-file bench.jsonl",
}


def _mean_tokens(service: Service, name: str) -> int | None:
    """Mean of the lengths that a service is asked with; None where it says none."""
    from accelsim.serving.loads.arrivals import Arrivals
    from accelsim.simulation.randomness import RandomStreams

    if (service.prompt if name == "prompt" else service.output) is None:
        return None
    arrivals = Arrivals(rate_per_s=1.0, prompt=service.prompt or "1", output=service.output or "1")
    columns = arrivals.columns(RandomStreams(0))
    return round(float(getattr(columns, f"{name}_tokens").mean()))
