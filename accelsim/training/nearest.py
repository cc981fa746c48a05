"""The plan that fits and is nearest to one that does not."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from accelsim.plain import Values
from accelsim.training.candidates import CandidatePlans
from accelsim.training.grid import CHOSEN, Scored, fits, score_groups
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
    wanted = replace(plan, stage_layers=None)
    fixed = {
        spec.name: getattr(plan, spec.name)
        for spec in fields(plan)
        if spec.name not in _IN_GRID and getattr(plan, spec.name) is not None
    }
    cut = {name: getattr(plan, name) for name in _CUT}
    host = {"optimizer_offload": True} if setup.host_memory_bytes_per_s is not None else {}
    away = host | {"activation_offload": True}
    tried = (cut | fixed, fixed, fixed | host, fixed | away, {**fixed, **away, "shard_group": None})
    for fixed_fields in tried:
        near = _nearest_of_grid(setup, fixed_fields, wanted)
        if near is not None:
            return near
    return None


def _nearest_of_grid(
    setup: TrainingSetup, fixed_fields: Values, plan: ParallelismPlan
) -> ParallelismPlan | None:
    """The plan of a grid that fits and is nearest to another one; None where none fits."""
    best: tuple[int, float, ParallelismPlan] | None = None
    wanted = CandidatePlans.of([plan])
    groups: list[Scored] = []
    fixed = {name: value for name, value in fixed_fields.items() if value is not None}
    for _ in score_groups(setup, fixed, None, groups):
        pass
    for scored in groups:
        rows = np.flatnonzero(fits(setup, scored))
        if not len(rows):
            continue
        columns = scored.plans.columns
        changed = sum((columns[name][rows] != wanted[name][0]).astype(np.int64) for name in columns)
        times = scored.scores.iteration_s[rows]
        nearest = int(np.lexsort((times, changed))[0])
        entry = (int(changed[nearest]), float(times[nearest]))
        if best is None or entry < best[:2]:
            best = (*entry, scored.plans.plan(int(rows[nearest])))
    return None if best is None else best[2]
