"""The page of a served load: whether it keeps its targets, its times to tokens with their
intervals and the targets as lines, and what it costs at other loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from accelsim.plain import Document, Values
from accelsim.report.calculator import LoadOption, calculator_section
from accelsim.report.changes import Figure, against, changes_section
from accelsim.report.curves import Curve, curves_section
from accelsim.report.page import Cell, DataTable, Page, Section, axis, cell, figure
from accelsim.report.parts import (
    COLOURS,
    joules,
    mapping_section,
    metrics_section,
    provenance_sections,
)
from accelsim.report.quantity import amount, duration, number, percent, usd
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import offers_section
from accelsim.report.serving import month_words
from accelsim.report.serving_steps import step_sections
from accelsim.serving.result import deployment_words

if TYPE_CHECKING:
    from accelsim.exploration.sensitivity.change import Change
    from accelsim.serving.result import ServingResult
    from accelsim.simulation.timeline import StepFunction

_watts = partial(amount, unit="W")
_TIMES = {
    "ttft_s": "first token",
    "tpot_s": "further token",
    "itl_s": "gap between tokens",
    "e2e_s": "whole request",
    "queue_s": "queueing",
}
_SECONDS_PER_HOUR = 3600.0


def serving_page(
    document: Values,
    command: str,
    result: ServingResult | None = None,
    changes: Sequence[Change[ServingResult]] = (),
) -> Page:
    """The report of a served load.

    Args:
        document: The result as plain values.
        command: Command that makes the page again.
        result: The result with its requests, for what happens over time; None for a saved one.
        changes: The load with one thing changed, the load as it is first.
    """
    devices = known_devices([document["device"]])
    sections = [_times(document)]
    if result is not None:
        sections += _over_time(result)
        sections += step_sections(result)
    if changes:
        sections.append(_sensitivity(changes))
    flat = {**document, "inputs": _flat(document["inputs"])}
    rest = [
        _calculator(document),
        _offers(document) if devices else None,
        mapping_section("replica", "The replica and its memory", document["plan"]),
        metrics_section(document["metrics"]),
        *provenance_sections([flat], devices),
    ]
    title = f"{document['workload']} on {_deployed(document)}"
    return Page.of(title, _decision(document), [*sections, *rest], command, document["warnings"])


def _flat(inputs: Values) -> Document:
    return {
        f"{part} {name}": value
        for part, found in inputs.items()
        for name, value in (found.items() if isinstance(found, Mapping) else [("", found)])
    }


def _decision(d: Values) -> tuple[str, ...]:
    where = f"{_deployed(d)} with {d['engine']}"
    met = d["slo_attainment_fraction"]
    asked = d["inputs"]["options"]["slo"]["attainment_fraction"]
    if met is None:
        first = f"{where} answers {number(d['throughput_requests_per_s'])} requests/s."
    else:
        keeps = "keeps" if met >= asked else "does not keep"
        first = f"{where} {keeps} the targets: {percent(met)} of the requests meet them."
    times = ", ".join(
        f"{words} {duration(d[name]['p50'])} (p50), {duration(d[name]['p99'])} (p99)"
        for name, words in _TIMES.items()
        if name in {"ttft_s", "tpot_s", "e2e_s"} and d[name]["p50"] is not None
    )
    power = f"{joules(d['energy_j_per_token'])} per token, {amount(d['average_power_w'], 'W')}"
    cost = f"{usd(d['cost_usd_per_1000_requests'])} per 1,000 requests"
    overload = (
        ("It is overloaded: the queue grows as long as the load lasts.",) if d["saturated"] else ()
    )
    used = f"Utilisation {percent(d['utilisation_fraction'])}"
    month = f"A month at this load: {month_words(d)}."
    return (first, *overload, f"Times: {times}.", f"{used}; energy {power}; cost {cost}.", month)


def _deployed(d: Values) -> str:
    """Replicas, devices and instances of the first pool."""
    first, *others = d["pools"]
    instances = None if others else d["instances"]
    return deployment_words(d["device"], d["replicas"], first["devices"], d["plan"], instances)


def _times(document: Values) -> Section:
    """Percentiles of each time, its target as a line, its interval as a bar."""
    slo = document["inputs"]["options"]["slo"]
    rows: list[tuple[str | Cell, ...]] = []
    traces: list[Document] = []
    for place, (name, words) in enumerate(_TIMES.items()):
        parts = {part: one for part, one in document[name].items() if one is not None}
        if not parts:
            continue
        colour = COLOURS[place]
        ends = [document["metrics"].get(f"{name}.{part}", {}) for part in parts]
        above, below = ([_gap(one, end) for one in ends] for end in ("high", "low"))
        bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": words,
                "x": list(parts),
                "y": list(parts.values()),
                "error_y": bars,
                "line": {"color": colour},
            }
        )
        if slo.get(name) is not None:
            line = {"type": "scatter", "mode": "lines", "name": f"target, {words}"}
            dash = {"color": colour, "dash": "dash"}
            traces.append(line | {"x": list(parts), "y": [slo[name]] * len(parts), "line": dash})
        rows += [
            (
                words,
                part,
                cell(value, duration),
                *(cell(one.get(end), duration) for end in ("low", "high")),
                cell(slo.get(name), duration) if slo.get(name) is not None else "none",
            )
            for (part, value), one in zip(parts.items(), ends, strict=True)
        ]
    layout = {"yaxis": axis("time", type="log", ticksuffix="s", exponentformat="SI")}
    titles = ("time", "of requests", ">value", ">low", ">high", ">target")
    text = "Bars: 90 % interval from the error of the step times. Dashed: the targets."
    drawn = figure(traces, xaxis=axis(""), **layout)
    return Section("times", "Times of requests", DataTable(titles, rows), text, drawn)


def _over_time(result: ServingResult) -> list[Section]:
    """Requests in each stage, and power and cache in use."""
    stages = result.stage_counts()
    start_s = min(float(steps.time_s[0]) for steps in stages.values() if len(steps.time_s))
    end_s = result.duration_s
    requests = [Curve(name, _since(steps, start_s), number) for name, steps in stages.items()]
    used: list[Curve] = []
    if "power_w" in result.curves:
        used.append(Curve("power, W", _since(result.curves["power_w"], start_s), _watts))
    if "cache_fraction" in result.curves:
        share = _since(result.curves["cache_fraction"], start_s)
        share = replace(share, value=100 * share.value)
        used.append(Curve("cache in use, %", share, number))
    text = f"{result.completed:,} requests that ended"
    found = [
        curves_section("requests", "Requests over time", requests, end_s, text, left=len(requests))
    ]
    if used:
        text = "Mean power of all devices, and the share of all cache blocks that requests hold"
        title = "Power and memory over time"
        found.append(curves_section("power", title, used, end_s, text))
    return found


def _since(steps: StepFunction, start_s: float) -> StepFunction:
    return replace(steps, time_s=steps.time_s - start_s)


def _sensitivity(changes: Sequence[Change[ServingResult]]) -> Section:
    """What a change does to times, the targets, energy and cost; bars of the whole request."""
    figures = (
        Figure("first token", lambda one: one.ttft_s["p50"], duration),
        Figure("further token", lambda one: one.tpot_s["p50"], duration),
        Figure("whole request", _whole_s, duration),
        Figure("meet the targets", attrgetter("slo_attainment_fraction"), percent),
        Figure("energy per token", attrgetter("energy_j_per_token"), joules),
        Figure("$/1,000", attrgetter("cost_usd_per_1000_requests"), usd),
    )
    count = next((one.result.requests for one in changes if one.result is not None), 0)
    text = f"One thing changed at a time, the first {count:,} requests simulated again; medians."
    base = changes[0].result
    drawn = {
        "time of a request": against(base, _whole_s),
        "cost": against(base, attrgetter("cost_usd_per_1000_requests")),
    }
    return changes_section(changes, figures, drawn, text)


def _whole_s(one: ServingResult) -> float | None:
    return one.e2e_s["p50"]


def _gap(metric: Values, end: str) -> float:
    value, other = metric.get("value"), metric.get(end)
    return 0.0 if value is None or other is None else abs(other - value)


def _offers(d: Values) -> Section | None:
    """Cost and carbon of a request at this load; None where several devices share it."""
    if len({pool["device"] for pool in d["pools"]}) > 1:
        return None
    count = d["replicas"] * d["plan"]["devices_per_replica"]
    energy, done = d["energy_j"], d["completed"]
    per_request = energy / done if energy is not None and done else None
    rate = d["throughput_requests_per_s"]
    return offers_section([(d["device"], rate and rate / count, per_request)], "requests")


def _calculator(d: Values) -> Section | None:
    """Cost at other loads: the rate at full utilisation is the rate now over the share used."""
    rate, used = d["throughput_requests_per_s"], d["utilisation_fraction"]
    per_1000 = d["cost_usd_per_1000_requests"]
    if not rate or not used or per_1000 is None:
        return None
    hourly = per_1000 / 1e3 * rate * _SECONDS_PER_HOUR / d["replicas"]
    full = rate / used / d["replicas"]
    option = LoadOption(
        f"replica of {d['device']}", full, hourly, devices=d["plan"]["devices_per_replica"]
    )
    text = (
        f"A replica at full use is taken to answer {number(full)} requests/s: the rate of this run "
        f"over its utilisation of {percent(used)}, an estimate that leaves batching out; "
        "accelsim serve --find max-rate simulates it."
    )
    return calculator_section([option], rate, "requests", text)
