"""The best plan over trainers, the software that trains language models, where none is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelsim.catalog.stacks import stack, stack_names
from accelsim.errors import InputError
from accelsim.estimation.options import RunOptions, run_options
from accelsim.plain import Document, Values
from accelsim.training.grid import Report
from accelsim.training.iteration import simulate_iteration
from accelsim.training.place import training_setup
from accelsim.training.plan import ParallelismPlan, parse_plan
from accelsim.training.search import Search, search_devices
from accelsim.training.setup import TrainingPlace, TrainingSetup
from accelsim.workloads.model import Workload

#: Plans of the first search that every other trainer is asked for.
_ASKED = 3


def trainer_names() -> tuple[str, ...]:
    """Stacks that train and do nothing else."""
    return tuple(name for name in stack_names() if stack(name).modes == ("training",))


def search_trainers(
    setup: TrainingSetup,
    on_stack: Callable[[str], TrainingSetup],
    named: Mapping[str, Any],
    usd_per_hour: float | None = None,
    report: Report | None = None,
) -> tuple[Search, TrainingSetup, tuple[Values, ...]]:
    """The best plan, where and on which software, and what each trainer takes for the first plans.

    The plans that are best on the usual software are asked of every trainer; the one that is the
    fastest then is searched whole.

    Args:
        setup: Model and devices on the usual software.
        on_stack: The same on another one, by its name.
        named: Fields that stay as they are.
        usd_per_hour: Price of one device; None where unknown.
        report: See `search_plans`.

    Raises:
        DoesNotFitError: If no plan fits.
        InputError: If no plan divides the model and the batch.
    """
    found, used = search_devices(setup, named, usd_per_hour, report)
    family = setup.run.workload.family
    if family is None or not family.shards or not found.is_complete:
        return found, used, ()
    rows = [_figures(used, found.plans[0])]
    others: dict[str, TrainingSetup] = {}
    for name in trainer_names():
        try:
            other = on_stack(name)
            row = _fastest(other, used, found.plans[:_ASKED])
        except InputError:  # it does not run there, or not so
            continue
        others[name] = other
        rows += [row] if row is not None else []
    rows.sort(key=lambda row: float(row["iteration_s"]))
    first = others.get(str(rows[0]["trainer"]))
    if first is not None:
        found, used = search_devices(first, named, usd_per_hour, report)
        rows[0] = _figures(used, found.plans[0])
    return found, used, tuple(rows)


def _fastest(
    other: TrainingSetup, used: TrainingSetup, plans: Sequence[Mapping[str, Any]]
) -> Values | None:
    """Figures of the fastest of some plans that fit; None where none does."""
    there = TrainingSetup(other.run, used.cluster, used.device_count, used.conditions)
    runs = [
        simulate_iteration(there, ParallelismPlan(**parse_plan(row["plan"])), there.run.batch)
        for row in plans
    ]
    fitting = [run for run in runs if run.memory_bytes <= there.capacity_bytes]
    if not fitting:
        return None
    best = min(fitting, key=lambda run: run.iteration_s)
    figures = {"iteration_s": best.iteration_s, "memory_bytes": best.memory_bytes}
    return _figures(there, {"plan": str(best.plan), **figures})


def _figures(setup: TrainingSetup, row: Mapping[str, Any]) -> Values:
    names = ("plan", "iteration_s", "memory_bytes")
    return {"trainer": setup.run.stack.label} | {name: row[name] for name in names}


def find_plan(
    setup: TrainingSetup,
    workload: str | Path | Workload,
    chosen: RunOptions,
    place: TrainingPlace,
    named: tuple[Document, float | None, Any],
) -> tuple[Search, TrainingSetup, tuple[Values, ...]]:
    """What a search finds: over trainers where no stack is named.

    Args:
        setup: Model and devices on the software named, or the usual one.
        workload: The model, as it is asked.
        chosen: What runs.
        place: Where.
        named: Fields that stay, USD an hour of a device, and what is told of the progress.

    Raises:
        DoesNotFitError: If no plan fits.
        InputError: If no plan divides the model and the batch.
    """

    def on_stack(name: str) -> TrainingSetup:
        options, rank = run_options(chosen, {"stack": name}), named[0].get("lora_rank")
        other = training_setup(workload, options, place, setup.conditions, rank)
        return replace(other, run=replace(other.run, batch=setup.run.batch))

    if chosen.model.stack is None:
        return search_trainers(setup, on_stack, *named)
    return (*search_devices(setup, *named), ())
