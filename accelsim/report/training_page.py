"""The page of a training estimate: its plan in words, what an iteration's time and memory go to,
the tasks of an iteration on each stage, and the Pareto front of a search.

Over the tasks of an iteration it draws the power of all devices and the memory of the worst rank.
The energy of passes is spread evenly over the time of their tasks: what a stage's layers differ in
energy beyond their time is left out. Activations are held from the start of a microbatch's forward
pass to the end of its backward pass (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.plain import Values
from accelsim.quantity import Writer, duration, say, size, usd, watts
from accelsim.report.calculator import calculator_section
from accelsim.report.curves import Curve, curves_section
from accelsim.report.operators import (
    OperatorRun,
    group_section,
    layers_of,
    roofline_section,
)
from accelsim.report.page import Page, Section, axis, figure, limit_line, points
from accelsim.report.parts import (
    mapping_section,
    metrics_section,
    provenance_sections,
    rows_section,
    shares_section,
)
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import accuracy_section, offers_section
from accelsim.report.timeline import timeline_section
from accelsim.report.training import decision_words
from accelsim.simulation.timeline import StepFunction, Timeline, accumulate
from accelsim.workloads.graph import BoolArray, FloatArray

if TYPE_CHECKING:
    from accelsim.training.iteration import Iteration

_AXES = ("iteration_s", "memory_bytes")
_FORWARD, _BACKWARD = ("forward",), ("backward", "weight gradient")


def training_page(
    document: Values,
    command: str,
    iteration: Iteration | None = None,
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
) -> Page:
    """The report of a training estimate.

    Args:
        document: The result as plain values.
        command: Command that makes the page again.
        iteration: The simulated iteration, with its tasks where they were recorded; None for a
            saved result.
        deadline_s: Longest time of the whole run that is wanted, drawn as a line.
        budget_usd: Most that it may cost, drawn as a line.
    """
    d = document
    refused = [{"plans": n, "why": why} for why, n in (d.get("rejected") or {}).items()]
    sections = [
        shares_section("time", "What an iteration's time goes to", d["time_s"], "s"),
        shares_section("memory", "Memory of the worst rank", d["memory"], "bytes"),
        *(_operators(iteration, d) if iteration is not None else ()),
        _pareto(d, iteration, deadline_s, budget_usd) if d.get("pareto") else None,
        rows_section("plans", "Best plans, and why the others lose", d.get("plans") or ()),
        rows_section("rejected", "Plans that cannot run", refused),
        *_costs(d),
        mapping_section("plan", "The plan", d["plan"]),
        metrics_section(d["metrics"]),
        *provenance_sections([d], known_devices([d["device"]])),
    ]
    title = f"{d['workload']} on {d['device_count']:,} devices of {d['cluster'] or d['device']}"
    decision = (*_decision(d), *kept_limits(d, deadline_s, budget_usd))
    return Page.of(title, decision, sections, command, d["warnings"])


def _run_limits(
    d: Values, deadline_s: float | None, budget_usd: float | None
) -> Iterator[tuple[str, float, float | None, Writer]]:
    """Limits of the whole run that are given: name, most, what it takes, and how it is written."""
    if deadline_s is not None:
        yield "deadline", deadline_s, d.get("time_to_train_s"), duration
    if budget_usd is not None:
        yield "budget", budget_usd, d.get("total_cost_usd"), usd


def kept_limits(d: Values, deadline_s: float | None, budget_usd: float | None) -> list[str]:
    """Whether the whole run keeps its deadline and its budget, a sentence for each that is given.

    Args:
        d: The result as plain values, of a run with a length.
        deadline_s: Longest time of the run; None for none.
        budget_usd: Most that it may cost; None for none.
    """
    sentences = []
    for name, most, value, write in _run_limits(d, deadline_s, budget_usd):
        verdict = "is not known" if value is None else "is kept" if value <= most else "is missed"
        sentences.append(f"The {name} of {write(most)} {verdict}: {write(value)}.")
    return sentences


def _decision(d: Values) -> Iterator[str]:
    largest = max(d["time_s"].items(), key=lambda entry: entry[1], default=("nothing", 1.0))
    values = {
        **d,
        "plan_text": d["inputs"].get("plan") or "The plan",
        "most": largest[0].replace("_", " ") if largest[1] > 0 else "nothing",
    }
    yield f"{decision_words(d)}."
    yield say(
        "[{interval_level} interval of the whole run: {time_to_train_low_s} to "
        "{time_to_train_high_s}.]",
        d,
    )
    yield say(
        "{plan_text}: {iteration_s} an iteration of {plan.global_batch} samples, {samples_per_s} "
        f"samples/s.{'' if d['fits'] else ' It does not fit in the memory of a device.'}",
        values,
    )
    yield say(
        "{interval_level} interval {iteration_low_s} to {iteration_high_s}; mostly {most}; MFU "
        "{mfu_fraction}.",
        values,
    )
    yield say("Energy: {energy_j} an iteration. Cost: {cost_usd} an iteration.", d)


def _operators(iteration: Iteration, d: Values) -> Iterator[Section]:
    """Operators of one microbatch on one rank: roofline, time and energy by kind and layer; tasks
    and steps of the iteration, where they were recorded.
    """
    frame = iteration.to_frame()
    frame["layer"] = layers_of(frame["path"].tolist())
    run = OperatorRun(iteration.setup.run.device, d["precision"], frame)
    text = "One microbatch on one rank, forward and backward, without the optimizer."
    yield roofline_section([run], text)
    for column in ("kind", "layer", "bound"):
        yield group_section(frame, column, "a microbatch")
    if iteration.timeline is not None:
        text = "Each pass of a microbatch, send and reduction"
        yield timeline_section(iteration.timeline, "One iteration", text, "category")
        yield step_section(iteration, iteration.timeline)


def _costs(d: Values) -> Iterator[Section | None]:
    """Cost of other rates of training, cost at each offer, and how sure the figures are."""
    device, device_count, rate_per_s = d["device"], d["device_count"], d["samples_per_s"]
    if not known_devices([device]):
        return
    if d["cost_usd"] is not None and rate_per_s:
        hourly_usd = d["cost_usd"] / d["iteration_s"] * SECONDS_PER_HOUR
        option = LoadOption(f"{device_count:,} x {device}", rate_per_s, hourly_usd)
        text = (
            f"Copies of these {device_count:,} devices at this plan's rate; what joins the copies "
            "is left out."
        )
        yield calculator_section([option], rate_per_s, "samples", text, name="cost")
    energy_j = None if d["energy_j"] is None else d["energy_j"] / d["plan"]["global_batch"]
    yield offers_section([(device, rate_per_s / device_count, energy_j)])
    yield accuracy_section([device])


def _pareto(
    d: Values, iteration: Iteration | None, deadline_s: float | None, budget_usd: float | None
) -> Section:
    """Time against memory of plans that no other beats, coloured by energy, with the times of an
    iteration at which the whole run reaches a limit and the memory of a device as lines.
    """
    plans = d["pareto"]
    times_s, memory_bytes = ([plan[name] for plan in plans] for name in _AXES)
    capacity_bytes = None if iteration is None else iteration.setup.capacity_bytes
    most_bytes = max(*memory_bytes, capacity_bytes or 0.0)
    lines = [
        limit_line(name, [d["iteration_s"] * most / value] * 2, [0.0, most_bytes])
        for name, most, value, _ in _run_limits(d, deadline_s, budget_usd)
        if value
    ]
    if capacity_bytes is not None:
        ends = [min(times_s), max(times_s)]
        lines.append(limit_line("memory of a device", ends, [capacity_bytes] * 2))
    marks = points(
        "plans",
        plans,
        *_AXES,
        text="{plan}",
        hovertemplate="%{text}<br>%{x:.4s}s, %{y:.4s}B<extra></extra>",
        marker={
            "size": 10,
            "color": [plan["energy_j"] for plan in plans],
            "colorscale": "Viridis",
            "colorbar": {"title": {"text": "energy, J"}},
        },
    )
    memory_axis = axis("memory of the worst rank, B", rangemode="tozero")
    picture = figure([marks, *lines], "time of an iteration", log="x", yaxis=memory_axis)
    columns = (
        "plan | >iteration=iteration_s | >memory=memory_bytes | >energy=energy_j | >cost=cost_usd"
    )
    rows = [{"cost_usd": None, **plan} for plan in plans]
    title = "Plans that no other beats in time, memory and energy"
    return Section.of("pareto", title, columns, rows, "", picture)


def step_section(iteration: Iteration, tasks: Timeline) -> Section:
    """Power and memory over the tasks of an iteration.

    Args:
        iteration: The iteration.
        tasks: Its tasks.
    """
    setup = iteration.setup
    curves = [Curve("memory of the worst rank, B", _memory(iteration, tasks), size)]
    if setup.idle_w is not None:
        still_w = setup.energy_j(0.0, 1.0)
        priced = replace(tasks, energy_j=setup.conditions.pue * _task_energy_j(iteration, tasks))
        curves.insert(0, Curve("power, W", priced.power(still_w), watts))
    text = (
        "All devices and hosts; energy of passes spread evenly over their tasks. Memory grows with "
        "the microbatches whose activations wait"
    )
    title = "Power and memory over the iteration"
    return curves_section("power", title, curves, tasks.makespan_s, text)


def _of_category(tasks: Timeline, names: tuple[str, ...]) -> BoolArray:
    return np.isin(tasks.categories, names)[tasks.category]


def _task_energy_j(iteration: Iteration, tasks: Timeline) -> FloatArray:
    """Dynamic energy of each task on all the devices it stands for, in joules.

    Estimate: each pass of a microbatch takes the energy that the cost model gives its operators,
    spread over its tasks by their time; the optimizer's step takes what is left of an iteration's.
    """
    costs, unit, plan = iteration.costs, iteration.unit, iteration.plan
    ranks = plan.dp * plan.tp * plan.cp  # the stages of a pipeline hold the blocks together
    forward_j = costs["energy_forward_j"][unit].sum() * ranks
    backward_j = costs["energy_backward_j"][unit].sum() * ranks
    if plan.recompute == "full":
        backward_j += costs["again_energy_j"][unit].sum() * ranks
    count = iteration.microbatch_count
    ends_s = getattr(iteration.run, "microbatch_end_s", None)
    # tasks are of the first microbatches of a fully sharded iteration, else of all
    simulated = count if ends_s is None else len(ends_s)
    update_j = iteration.scores.energy_j[0] - count * (forward_j + backward_j)
    energies_j = (
        (_FORWARD, simulated * forward_j),
        (_BACKWARD, simulated * backward_j),
        (("update",), max(float(update_j), 0.0)),
    )
    task_energy_j = np.zeros(len(tasks))
    for categories, energy_j in energies_j:
        seconds = tasks.duration_s * _of_category(tasks, categories)
        total_s = seconds.sum()
        task_energy_j += energy_j * seconds / total_s if total_s else 0.0
    return task_energy_j


def _memory(iteration: Iteration, tasks: Timeline) -> StepFunction:
    """Memory of the worst rank: what it always holds, and activations that wait.

    Activations grow with the microbatches under way, up to what the plan holds of them
    (Korthikanti et al. 2022, section 4.2.3).
    """
    waiting_bytes = float(iteration.scores.memory["activation_bytes"][0])
    stage = f"stage {int(iteration.scores.worst_stage[0])}"
    resource = tasks.resources.index(stage if stage in tasks.resources else "compute")
    is_mine = tasks.resource == resource
    starts, ends = (is_mine & _of_category(tasks, names) for names in (_FORWARD, ("backward",)))
    under_way = accumulate(
        np.concatenate([tasks.start_s[starts], tasks.end_s[ends]]),
        np.concatenate([_shares(tasks, starts), -_shares(tasks, ends)]),
    )
    scale_bytes = waiting_bytes / (under_way.maximum or 1.0)
    held_bytes = iteration.memory_bytes - waiting_bytes
    begins_s = np.concatenate([[0.0], under_way.time_s])
    return StepFunction(
        begins_s, held_bytes + np.concatenate([[0.0], scale_bytes * under_way.value])
    )


def _shares(tasks: Timeline, rows: BoolArray) -> FloatArray:
    """Share of its pass that each task is: passes may be several chunks or parts."""
    names = tasks.name[rows]
    return 1.0 / np.bincount(names)[names] if len(names) else np.zeros(0)
