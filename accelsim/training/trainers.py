"""The best plan over trainers, the software that trains language models, where none is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from accelsim.catalog.stacks import stack, stack_names
from accelsim.errors import InputError
from accelsim.estimation.evidence import LEAST_ROWS
from accelsim.estimation.options import RunOptions, run_options
from accelsim.plain import Values
from accelsim.training.iteration import Iteration
from accelsim.training.place import training_setup
from accelsim.training.plan import ParallelismPlan, parse_plan
from accelsim.training.search import Search, SearchRequest, search_devices
from accelsim.training.setup import TrainingPlace, TrainingSetup
from accelsim.training.simulated_iteration import simulate_iteration
from accelsim.training.trust import are_tied, trainer_evidence
from accelsim.workloads.model import Workload

#: Plans of the first search that every other trainer is asked for.
_ASKED = 3


def trainer_names() -> tuple[str, ...]:
    """Stacks that train and do nothing else."""
    return tuple(name for name in stack_names() if stack(name).modes == ("training",))


def search_trainers(
    setup: TrainingSetup,
    on_stack: Callable[[str], TrainingSetup],
    request: SearchRequest,
) -> tuple[Search, TrainingSetup, tuple[Values, ...]]:
    """The best plan, where and on which software, and what each trainer takes for the first plans.

    The plans that are best on the usual software are asked of every trainer. Those that cannot be
    told from the fastest are tied; of these the fastest with measured runs enough is searched
    whole, or the fastest where none has them.

    Args:
        setup: Model and devices on the usual software.
        on_stack: The same on another one, by its name.
        request: What is asked of the search.

    Raises:
        DoesNotFitError: If no plan fits.
        InputError: If no plan divides the model and the batch.
    """
    search, used = search_devices(setup, request)
    family = setup.run.workload.family
    if family is None or not family.shards or not search.is_complete:
        return search, used, ()
    race = [simulate_iteration(used, search.best, used.run.batch)]
    others: dict[str, TrainingSetup] = {}
    for name in trainer_names():
        try:
            other_setup = on_stack(name)
            run = _fastest(other_setup, used, search.plans[:_ASKED])
        except InputError:  # it does not run there, or not so
            continue
        others[name] = other_setup
        race += [run] if run is not None else []
    race.sort(key=lambda run: run.iteration_s)
    chosen = _chosen(race)
    setup_of_chosen = others.get(chosen.setup.run.stack.label)
    if setup_of_chosen is not None:
        search, used = search_devices(setup_of_chosen, request)
        chosen = simulate_iteration(used, search.best, used.run.batch)
    rows = tuple(
        _figures(chosen if run.setup.run.stack == chosen.setup.run.stack else run, chosen, race[0])
        for run in race
    )
    return search, used, rows


def _chosen(race: Sequence[Iteration]) -> Iteration:
    """The trainer to take of some, fastest first: of those tied with the fastest the first with
    measured runs enough, else the fastest.
    """
    measured = (
        run for run in race if trainer_evidence(run)[0] >= LEAST_ROWS and are_tied(run, race[0])
    )
    return next(measured, race[0])


def _fastest(
    trainer_setup: TrainingSetup, used: TrainingSetup, plans: Sequence[Values]
) -> Iteration | None:
    """The fastest of some plans that fit; None where none does."""
    local_setup = TrainingSetup(trainer_setup.run, used.cluster, used.device_count, used.conditions)
    runs = [
        simulate_iteration(
            local_setup, ParallelismPlan(**parse_plan(row["plan"])), local_setup.run.batch
        )
        for row in plans
    ]
    fitting = [run for run in runs if run.memory_bytes <= local_setup.capacity_bytes]
    return min(fitting, key=lambda run: run.iteration_s) if fitting else None


def _figures(run: Iteration, chosen: Iteration, fastest: Iteration) -> Values:
    return {
        "trainer": run.setup.run.stack.label,
        "plan": str(run.plan),
        "iteration_s": run.iteration_s,
        "memory_bytes": run.memory_bytes,
        "measured_rows": trainer_evidence(run)[0],
        "is_tied": are_tied(run, fastest),
        "is_chosen": run is chosen,
    }


def find_plan(
    setup: TrainingSetup,
    workload: str | Path | Workload,
    chosen: RunOptions,
    place: TrainingPlace,
    request: SearchRequest,
) -> tuple[Search, TrainingSetup, tuple[Values, ...]]:
    """What a search finds: over trainers where no stack is named.

    Args:
        setup: Model and devices on the software named, or the usual one.
        workload: The model, as it is asked.
        chosen: What runs.
        place: Where.
        request: What is asked of the search.

    Raises:
        DoesNotFitError: If no plan fits.
        InputError: If no plan divides the model and the batch.
    """

    def on_stack(name: str) -> TrainingSetup:
        options, rank = run_options(chosen, {"stack": name}), request.fixed.get("lora_rank")
        other_setup = training_setup(workload, options, place, setup.conditions, rank)
        return replace(other_setup, run=replace(other_setup.run, batch=setup.run.batch))

    if chosen.model.stack is None:
        return search_trainers(setup, on_stack, request)
    return (*search_devices(setup, request), ())
