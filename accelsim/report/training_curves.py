"""Power of all devices and memory of the worst rank while an iteration goes on.

The energy of passes is spread evenly over the time of their tasks: what a stage's layers differ in
energy beyond their time is left out. Activations are held from the start of a microbatch's forward
pass to the end of its backward pass (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.quantity import size, watts
from accelsim.report.curves import Curve, curves_section
from accelsim.report.page import Section
from accelsim.simulation.timeline import StepFunction, Timeline, accumulate
from accelsim.workloads.graph import BoolArray, FloatArray

if TYPE_CHECKING:
    from accelsim.training.iteration import Iteration

_FORWARD = ("forward",)
_BACKWARD = ("backward", "weight gradient")


def step_section(iteration: Iteration, lines: Timeline) -> Section:
    """Power and memory over the tasks of an iteration.

    Args:
        iteration: The iteration.
        lines: Its tasks.
    """
    setup = iteration.setup
    curves = [Curve("memory of the worst rank, B", _memory(iteration, lines), size)]
    if setup.idle_w is not None:
        still_w = setup.energy_j(0.0, 1.0)
        spent = replace(lines, energy_j=setup.conditions.pue * _task_energy_j(iteration, lines))
        curves.insert(0, Curve("power, W", spent.power(still_w), watts))
    text = (
        "All devices and hosts; energy of passes spread evenly over their tasks. Memory grows with "
        "the microbatches whose activations wait"
    )
    return curves_section(
        "power", "Power and memory over the iteration", curves, lines.makespan_s, text
    )


def _of_category(lines: Timeline, words: tuple[str, ...]) -> BoolArray:
    codes = [code for code, word in enumerate(lines.categories) if word in words]
    return np.isin(lines.category, codes)


def _task_energy_j(iteration: Iteration, lines: Timeline) -> FloatArray:
    """Dynamic energy of each task on all the devices it stands for, in joules."""
    costs, unit, plan = iteration.costs, iteration.unit, iteration.plan
    backward = costs["energy_backward_j"][unit].sum()
    if plan.recompute == "full":
        backward = backward + costs["again_energy_j"][unit].sum()
    ranks = plan.dp * plan.tp * plan.cp  # the stages of a pipeline hold the blocks together
    is_forward, is_backward = _of_category(lines, _FORWARD), _of_category(lines, _BACKWARD)
    is_update = _of_category(lines, ("update",))
    each = {"forward": costs["energy_forward_j"][unit].sum() * ranks, "backward": backward * ranks}
    simulated = _microbatches(iteration)
    rest = iteration.scores.energy_j[0] - iteration.microbatch_count * sum(each.values())
    shares = (
        (is_forward, simulated * each["forward"]),
        (is_backward, simulated * each["backward"]),
        (is_update, max(float(rest), 0.0)),  # the optimizer's step
    )
    task_energy_j = np.zeros(len(lines))
    for rows, energy_j in shares:
        seconds = lines.duration_s * rows
        total_s = seconds.sum()
        task_energy_j += energy_j * seconds / total_s if total_s else 0.0
    return task_energy_j


def _microbatches(iteration: Iteration) -> int:
    """Microbatches that the tasks are of: the first of a fully sharded iteration, else all."""
    ends = getattr(iteration.run, "microbatch_end_s", None)
    return iteration.microbatch_count if ends is None else len(ends)


def _memory(iteration: Iteration, lines: Timeline) -> StepFunction:
    """Memory of the worst rank: what it always holds, and activations that wait."""
    waiting = float(iteration.scores.memory["activation_bytes"][0])
    stage = f"stage {int(iteration.scores.worst_stage[0])}"
    resource = lines.resources.index(stage if stage in lines.resources else "compute")
    mine = lines.resource == resource
    starts, ends = (mine & _of_category(lines, words) for words in (_FORWARD, ("backward",)))
    time_s = np.concatenate([lines.start_s[starts], lines.end_s[ends]])
    change = np.concatenate([_shares(lines, starts), -_shares(lines, ends)])
    under_way = accumulate(time_s, change)
    scale = waiting / (under_way.maximum or 1.0)
    held = iteration.memory_bytes - waiting
    begins = np.concatenate([[0.0], under_way.time_s])
    return StepFunction(begins, held + np.concatenate([[0.0], scale * under_way.value]))


def _shares(lines: Timeline, rows: BoolArray) -> FloatArray:
    """Share of its pass that each task is: passes may be several chunks or parts."""
    names = lines.name[rows]
    return 1.0 / np.bincount(names)[names] if len(names) else np.zeros(0)
