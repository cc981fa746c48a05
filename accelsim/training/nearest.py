"""The plan that fits and is nearest to one that does not."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from accelsim.training.candidates import CandidatePlans
from accelsim.training.grid import CHOSEN, GridScores
from accelsim.training.plan import ParallelismPlan
from accelsim.training.setup import TrainingSetup

#: Fields by which a grid cuts layers, and all those that its plans differ in.
_CUT = ("tp", "cp", "ep", "pp", "sp")
_IN_GRID = frozenset((*_CUT, *CHOSEN, "dp", "etp", "stage_layers"))
_NONE = "No plan on these devices fits, offloading included: take more, or train adapters alone."


def fitting_words(setup: TrainingSetup, plan: ParallelismPlan) -> str:
    """What to do where a plan does not fit: the nearest one that does, or more devices."""
    near = nearest_plan(setup, plan)
    return _NONE if near is None else f"The nearest plan that fits: {near}."


def nearest_plan(setup: TrainingSetup, plan: ParallelismPlan) -> ParallelismPlan | None:
    """The plan that fits and changes the fewest fields; the fastest of those. None where none does.

    What no grid changes stays: adapters, offloading, buckets. Where none fits so, states wait on
    the host, then activations too.

    Args:
        setup: Model and devices.
        plan: A plan that does not fit.
    """
    wanted = CandidatePlans.of([replace(plan, stage_layers=None)])
    values = {spec.name: getattr(plan, spec.name) for spec in fields(plan)}
    cut = {name: values[name] for name in _CUT}
    fixed = {name: value for name, value in values.items() if name not in _IN_GRID}
    host = {"optimizer_offload": True} if setup.host_memory_bytes_per_s is not None else {}
    away = fixed | host | {"activation_offload": True}
    for kept_fields in (cut | fixed, fixed, fixed | host, away, away | {"shard_group": None}):
        grid = GridScores()
        grid.add_grid(setup, {n: value for n, value in kept_fields.items() if value is not None})
        if not grid.groups:
            continue
        scored = grid.joined()
        fitting = scored.take(scored.memory_bytes <= setup.capacity_bytes)
        if len(fitting):
            columns = fitting.plans.columns
            changes = sum((columns[name] != wanted[name]).astype(np.int64) for name in columns)
            nearest = np.lexsort((fitting.iteration_s, changes))[0]
            return fitting.plans.plan(int(nearest))
    return None
