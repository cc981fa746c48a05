"""The page of a training estimate: its plan in words, what an iteration's time and memory go to,
the tasks of an iteration on each stage, and the Pareto front of a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from accelsim.plain import Values
from accelsim.report.calculator import LoadOption, calculator_section
from accelsim.report.changes import Figure, against, changes_section, signed
from accelsim.report.operators import (
    OperatorRun,
    group_section,
    layers_of,
    roofline_section,
)
from accelsim.report.page import DataTable, Page, Section, axis, cell, figure, label
from accelsim.report.parts import (
    cut,
    joules,
    mapping_section,
    metrics_section,
    provenance_sections,
    rows_section,
    shares_section,
)
from accelsim.report.quantity import amount, duration, number, percent, usd
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import accuracy_section, offers_section
from accelsim.report.timeline import timeline_section
from accelsim.report.training_curves import step_section

if TYPE_CHECKING:
    from accelsim.exploration.sensitivity.change import Change
    from accelsim.training.estimate import TrainingEstimate
    from accelsim.training.iteration import Iteration

_SECONDS_PER_HOUR = 3600.0
_bytes = partial(amount, unit="B", small=False)


def training_page(
    document: Values,
    command: str,
    iteration: Iteration | None = None,
    changes: Sequence[Change[TrainingEstimate]] = (),
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
        changes: The run with one thing changed, the run as it is first.
        deadline_s: Longest time of the whole run that is wanted, drawn as a line.
        budget_usd: Most that it may cost, drawn as a line.
    """
    d = document
    sections = [
        shares_section("time", "What an iteration's time goes to", d["time_s"], duration),
        shares_section("memory", "Memory of the worst rank", d["memory"], _bytes),
    ]
    if iteration is not None:
        sections += [*_operators(iteration, d), *_timelines(iteration)]
    if changes:
        sections.append(_sensitivity(changes))
    if d.get("pareto"):
        capacity = None if iteration is None else iteration.setup.capacity_bytes
        sections.append(_pareto(d["pareto"], _line_places(d, deadline_s, budget_usd), capacity))
    refused = [{"plans": n, "why": why} for why, n in (d.get("rejected") or {}).items()]
    rest = [
        rows_section("plans", "Best plans, and why the others lose", d.get("plans") or ()),
        rows_section("rejected", "Plans that cannot run", refused),
        *_costs(d),
        mapping_section("plan", "The plan", d["plan"]),
        metrics_section(d["metrics"]),
        *provenance_sections([d], known_devices([d["device"]])),
    ]
    where = d["cluster"] or d["device"]
    title = f"{d['workload']} on {d['device_count']:,} devices of {where}"
    decision = (*_decision(d), *kept_limits(d, deadline_s, budget_usd))
    return Page.of(title, decision, [*sections, *rest], command, d["warnings"])


def _timelines(iteration: Iteration) -> list[Section]:
    """Tasks and steps of a simulated iteration, where they were recorded."""
    if iteration.timeline is None:
        return []
    text = "Each pass of a microbatch, send and reduction"
    return [
        timeline_section(iteration.timeline, "One iteration", text, "category"),
        step_section(iteration, iteration.timeline),
    ]


def kept_limits(d: Values, deadline_s: float | None, budget_usd: float | None) -> list[str]:
    """Whether the whole run keeps its deadline and its budget, a sentence for each that is given.

    Args:
        d: The result as plain values, of a run with a length.
        deadline_s: Longest time of the run; None for none.
        budget_usd: Most that it may cost; None for none.
    """
    limits = (
        ("deadline", deadline_s, d.get("time_to_train_s"), duration),
        ("budget", budget_usd, d.get("total_cost_usd"), usd),
    )
    found = []
    for name, most, value, write in limits:
        if most is not None:
            known = "is not known" if value is None else "is kept" if value <= most else "is missed"
            found.append(f"The {name} of {write(most)} {known}: {write(value)}.")
    return found


def _line_places(
    d: Values, deadline_s: float | None, budget_usd: float | None
) -> dict[str, float | None]:
    """Time of an iteration at which the whole run would be at its limit, by the limit's name."""
    limits = {
        "deadline": (deadline_s, d.get("time_to_train_s")),
        "budget": (budget_usd, d.get("total_cost_usd")),
    }
    return {
        name: None if most is None or not value else d["iteration_s"] * most / value
        for name, (most, value) in limits.items()
    }


def _decision(d: Values) -> tuple[str, ...]:
    fits = "" if d["fits"] else " It does not fit in the memory of a device."
    low, high = duration(d["iteration_low_s"]), duration(d["iteration_high_s"])
    first = (
        f"{d['inputs'].get('plan') or 'The plan'}: {duration(d['iteration_s'])} an iteration of "
        f"{d['plan']['global_batch']:,} samples, {number(d['samples_per_s'])} samples/s.{fits}"
    )
    goes = {name: value for name, value in d["time_s"].items() if value > 0}
    most = max(goes, key=lambda name: goes[name]).replace("_", " ") if goes else "nothing"
    mfu = f"MFU {percent(d['mfu_fraction'])}" if d["mfu_fraction"] is not None else "MFU unknown"
    lines = [
        first,
        f"{percent(d['interval_level'])} interval {low} to {high}; mostly {most}; {mfu}.",
        f"Energy: {joules(d['energy_j'])} an iteration. Cost: {usd(d['cost_usd'])} an iteration.",
    ]
    if d.get("time_to_train_s") is not None:
        cost = usd(d.get("total_cost_usd"))
        lines.append(f"Whole run: {duration(d['time_to_train_s'])}, {cost}.")
    return tuple(lines)


def _operators(iteration: Iteration, d: Values) -> list[Section]:
    """Operators of one microbatch on one rank: roofline, time and energy by kind and layer."""
    frame = iteration.to_frame()
    frame["layer"] = layers_of(frame["path"].tolist())
    run = OperatorRun(iteration.setup.run.device, d["precision"], frame)
    text = "One microbatch on one rank, forward and backward, without the optimizer."
    return [
        roofline_section([run], text),
        group_section(frame, "kind", "Time and energy of a microbatch by kind of operator"),
        group_section(frame, "layer", "Time and energy of a microbatch by layer"),
        group_section(frame, "bound", "Time and energy of a microbatch by what limits it"),
    ]


def _costs(d: Values) -> list[Section | None]:
    """Cost of other rates of training, cost at each offer, and how sure the figures are."""
    if not known_devices([d["device"]]):
        return []
    rate, samples = d["samples_per_s"], d["plan"]["global_batch"]
    energy = None if d["energy_j"] is None else d["energy_j"] / samples
    found = [
        offers_section([(d["device"], rate / d["device_count"], energy)]),
        accuracy_section([d["device"]]),
    ]
    if d["cost_usd"] is None or not rate:
        return found
    hourly = d["cost_usd"] / d["iteration_s"] * _SECONDS_PER_HOUR
    option = LoadOption(f"{d['device_count']:,} x {d['device']}", rate, hourly)
    text = (
        f"Copies of these {d['device_count']:,} devices at this plan's rate; what joins the copies "
        "is left out."
    )
    return [calculator_section([option], rate, "samples", text, name="cost"), *found]


def _sensitivity(changes: Sequence[Change[TrainingEstimate]]) -> Section:
    """What a change does to time, energy and cost: of the whole run where its length is known, else
    of an iteration; bars of the time and the cost.
    """
    base = changes[0].result
    is_whole = base is not None and base.time_to_train_s is not None
    names = ("time_to_train_s", "total_energy_j", "total_cost_usd")
    time, energy, cost = map(
        attrgetter, names if is_whole else ("iteration_s", "energy_j", "cost_usd")
    )
    slower, dearer = against(base, time), against(base, cost)
    figures = (
        Figure("time", time, duration),
        Figure("change", slower, signed),
        Figure("energy", energy, joules),
        Figure("cost", cost, usd),
        Figure("change", dearer, signed),
    )
    of_what = "the whole run" if is_whole else "an iteration"
    text = f"One thing changed at a time at the same plan, predicted again; of {of_what}."
    return changes_section(changes, figures, {"time": slower, "cost": dearer}, text)


def _pareto(
    plans: Sequence[Values], limits: Mapping[str, float | None], capacity_bytes: float | None
) -> Section:
    """Time against memory of plans that no other beats, coloured by energy, with the times at which
    a limit is reached and the memory of a device as lines.
    """
    times, held = ([plan[name] for plan in plans] for name in ("iteration_s", "memory_bytes"))
    most = max(*held, capacity_bytes or 0.0)
    dash = {"type": "scatter", "mode": "lines", "line": {"dash": "dash", "color": "#d65f5f"}}
    lines = [
        dash | {"name": name, "x": [seconds] * 2, "y": [0.0, most]}
        for name, seconds in limits.items()
        if seconds is not None
    ]
    if capacity_bytes is not None:
        ends = {"x": [min(times), max(times)], "y": [capacity_bytes] * 2}
        lines.append(dash | {"name": "memory of a device", "line": {"dash": "dot"}} | ends)
    marker = {
        "size": 10,
        "color": [plan["energy_j"] for plan in plans],
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": "energy, J"}},
    }
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "plans",
        "x": times,
        "y": held,
        "text": [label(str(plan["plan"])) for plan in plans],
        "hovertemplate": "%{text}<br>%{x:.4s}s, %{y:.4s}B<extra></extra>",
        "marker": marker,
    }
    layout = {
        "xaxis": axis("iteration, s", type="log"),
        "yaxis": axis("memory of the worst rank, B", rangemode="tozero", exponentformat="SI"),
    }
    rows = [
        (
            str(plan["plan"]),
            cell(plan["iteration_s"], duration),
            cell(plan["memory_bytes"], _bytes),
            cell(plan["energy_j"], joules),
            cell(plan.get("cost_usd"), usd),
        )
        for plan in plans
    ]
    titles = ("plan", ">iteration", ">memory", ">energy", ">cost")
    title = "Plans that no other beats in time, memory and energy"
    return Section(
        "pareto", title, DataTable(titles, cut(rows)), "", figure([points, *lines], **layout)
    )
