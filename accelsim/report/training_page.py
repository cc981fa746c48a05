"""The page of a training estimate: its plan in words, what an iteration's time and memory go to,
the tasks of an iteration on each stage, and the Pareto front of a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from accelsim.economics.load_cost import LoadOption
from accelsim.plain import Values
from accelsim.quantity import duration, say, usd
from accelsim.report.calculator import calculator_section
from accelsim.report.operators import (
    OperatorRun,
    group_section,
    layers_of,
    roofline_section,
)
from accelsim.report.page import Page, Section, axis, figure, limit_line, trace
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
from accelsim.report.training_curves import step_section

if TYPE_CHECKING:
    from accelsim.training.iteration import Iteration

_SECONDS_PER_HOUR = 3600.0


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
    capacity = None if iteration is None else iteration.setup.capacity_bytes
    refused = [{"plans": n, "why": why} for why, n in (d.get("rejected") or {}).items()]
    sections = [
        shares_section("time", "What an iteration's time goes to", d["time_s"], "s"),
        shares_section("memory", "Memory of the worst rank", d["memory"], "bytes"),
        *(_operators(iteration, d) if iteration is not None else ()),
        _pareto(d["pareto"], _line_places(d, deadline_s, budget_usd), capacity)
        if d.get("pareto")
        else None,
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
    return Page.of(title, decision, sections, command, d["warnings"])


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
    kept_limits = []
    for name, most, value, write in limits:
        if most is not None:
            known = "is not known" if value is None else "is kept" if value <= most else "is missed"
            kept_limits.append(f"The {name} of {write(most)} {known}: {write(value)}.")
    return kept_limits


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


def _decision(d: Values) -> Iterator[str]:
    goes = {name: value for name, value in d["time_s"].items() if value > 0}
    most = max(goes, key=lambda name: goes[name]).replace("_", " ") if goes else "nothing"
    plan = d["inputs"].get("plan") or "The plan"
    yield f"{decision_words(d)}."
    yield say(
        "[{interval_level} interval of the whole run: {time_to_train_low_s} to "
        "{time_to_train_high_s}.]",
        d,
    )
    yield say(
        "{plan_words}: {iteration_s} an iteration of {plan.global_batch} samples, {samples_per_s} "
        f"samples/s.{'' if d['fits'] else ' It does not fit in the memory of a device.'}",
        {**d, "plan_words": plan},
    )
    yield say(
        "{interval_level} interval {iteration_low_s} to {iteration_high_s}; mostly {most}; MFU "
        "{mfu_fraction}.",
        {**d, "most": most},
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
        said = "Each pass of a microbatch, send and reduction"
        yield timeline_section(iteration.timeline, "One iteration", said, "category")
        yield step_section(iteration, iteration.timeline)


def _costs(d: Values) -> list[Section | None]:
    """Cost of other rates of training, cost at each offer, and how sure the figures are."""
    if not known_devices([d["device"]]):
        return []
    rate, samples = d["samples_per_s"], d["plan"]["global_batch"]
    energy = None if d["energy_j"] is None else d["energy_j"] / samples
    costs = [
        offers_section([(d["device"], rate / d["device_count"], energy)]),
        accuracy_section([d["device"]]),
    ]
    if d["cost_usd"] is None or not rate:
        return costs
    hourly = d["cost_usd"] / d["iteration_s"] * _SECONDS_PER_HOUR
    option = LoadOption(f"{d['device_count']:,} x {d['device']}", rate, hourly)
    text = (
        f"Copies of these {d['device_count']:,} devices at this plan's rate; what joins the copies "
        "is left out."
    )
    return [calculator_section([option], rate, "samples", text, name="cost"), *costs]


def _pareto(
    plans: Sequence[Values], limits: Mapping[str, float | None], capacity_bytes: float | None
) -> Section:
    """Time against memory of plans that no other beats, coloured by energy, with the times at which
    a limit is reached and the memory of a device as lines.
    """
    times, held = ([plan[name] for plan in plans] for name in ("iteration_s", "memory_bytes"))
    most = max(*held, capacity_bytes or 0.0)
    lines = [
        limit_line(name, [seconds] * 2, [0.0, most])
        for name, seconds in limits.items()
        if seconds is not None
    ]
    if capacity_bytes is not None:
        ends = [min(times), max(times)]
        lines.append(limit_line("memory of a device", ends, [capacity_bytes] * 2))
    points = trace(
        "plans",
        times,
        held,
        text=[plan["plan"] for plan in plans],
        hovertemplate="%{text}<br>%{x:.4s}s, %{y:.4s}B<extra></extra>",
        marker={
            "size": 10,
            "color": [plan["energy_j"] for plan in plans],
            "colorscale": "Viridis",
            "colorbar": {"title": {"text": "energy, J"}},
        },
    )
    memory = axis("memory of the worst rank, B", rangemode="tozero")
    drawn = figure([points, *lines], "time of an iteration", log="x", yaxis=memory)
    columns = (
        "plan | >iteration=iteration_s | >memory=memory_bytes | >energy=energy_j | >cost=cost_usd"
    )
    rows = [{"cost_usd": None, **plan} for plan in plans]
    title = "Plans that no other beats in time, memory and energy"
    return Section.of("pareto", title, columns, rows, "", drawn)
