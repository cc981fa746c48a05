"""The page of a served load: whether it keeps its targets, its times to tokens with their
intervals and the targets as lines, and what it costs at other loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from accelsim.economics.load_cost import LoadOption
from accelsim.plain import Document, Values
from accelsim.quantity import number, say, watts
from accelsim.report.calculator import calculator_section
from accelsim.report.curves import Curve, curves_section
from accelsim.report.page import Page, Section, figure, limit_line, trace
from accelsim.report.parts import COLOURS, mapping_section, metrics_section, provenance_sections
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import offers_section
from accelsim.report.serving import MONTH, TIMES
from accelsim.report.serving_steps import step_sections
from accelsim.serving.result import deployment_words

if TYPE_CHECKING:
    from accelsim.serving.result import ServingResult
    from accelsim.simulation.timeline import StepFunction

_SECONDS_PER_HOUR = 3600.0


def serving_page(
    document: Values,
    command: str,
    result: ServingResult | None = None,
) -> Page:
    """The report of a served load.

    Args:
        document: The result as plain values.
        command: Command that makes the page again.
        result: The result with its requests, for what happens over time; None for a saved one.
    """
    devices = known_devices([document["device"]])
    flat = {**document, "inputs": _flat(document["inputs"])}
    sections = [
        _times(document),
        _classes(document) if document.get("classes") else None,
        *([*_over_time(result), *step_sections(result)] if result is not None else ()),
        _calculator(document),
        _offers(document) if devices else None,
        mapping_section("replica", "The replica and its memory", document["plan"]),
        metrics_section(document["metrics"]),
        *provenance_sections([flat], devices),
    ]
    title = f"{document['workload']} on {_deployed(document)}"
    return Page.of(title, _decision(document), sections, command, document["warnings"])


def _flat(inputs: Values) -> Document:
    return {
        f"{part} {name}": value
        for part, found in inputs.items()
        for name, value in (found.items() if isinstance(found, Mapping) else [("", found)])
    }


def _decision(d: Values) -> Iterator[str]:
    met = d["slo_attainment_fraction"]
    asked = d["inputs"]["options"]["slo"]["attainment_fraction"]
    values = {**d, "where": f"{_deployed(d)} with {d['engine']}"}
    if met is None:
        yield say("{where} answers {throughput_requests_per_s} requests/s.", values)
    else:
        values["keeps"] = "keeps" if met >= asked else "does not keep"
        first = "{where} {keeps} the targets: {slo_attainment_fraction} of the requests meet them."
        yield say(first, values)
    yield say(f"A month at this load: {MONTH}.", d)
    if d["saturated"]:
        yield "It is overloaded: the queue grows as long as the load lasts."
    times = (
        "[, first token {ttft_s.p50} (p50), {ttft_s.p99} (p99)][, further token {tpot_s.p50} "
        "(p50), {tpot_s.p99} (p99)][, whole request {e2e_s.p50} (p50), {e2e_s.p99} (p99)]."
    )
    yield f"Times: {say(times, d)[2:]}"
    yield say(
        "Utilisation {utilisation_fraction}; energy {energy_j_per_token} per token, "
        "{average_power_w}; cost {cost_usd_per_1000_requests} per 1,000 requests.",
        d,
    )


def _deployed(d: Values) -> str:
    """Replicas, devices and instances of the first pool."""
    first, *others = d["pools"]
    instances = None if others else d["instances"]
    return deployment_words(d["device"], d["replicas"], first["devices"], d["plan"], instances)


def _times(document: Values) -> Section:
    """Percentiles of each time, its target as a line, its interval as a bar."""
    slo = document["inputs"]["options"]["slo"]
    rows: list[Document] = []
    traces: list[Document] = []
    for colour, (name, words) in zip(COLOURS, TIMES.items(), strict=False):
        parts = [part for part, one in document[name].items() if one is not None]
        if not parts:
            continue
        metrics = [document["metrics"][f"{name}.{part}"] for part in parts]
        target = slo.get(name)
        rows += [
            {"time": words, "part": part, "target_s": target, **one}
            for part, one in zip(parts, metrics, strict=True)
        ]
        above, below = ([_gap(metric, end) for metric in metrics] for end in ("high", "low"))
        bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        values = [metric["value"] for metric in metrics]
        line = {"color": colour}
        traces.append(trace(words, parts, values, "lines+markers", error_y=bars, line=line))
        if target is not None:
            traces.append(limit_line(f"target, {words}", parts, [target] * len(parts)))
    titles = (
        "time | of requests=part | >value=value:s | >low=low?:s | >high=high?:s | >target=target_s?"
    )
    text = "Bars: 90 % interval from the error of the step times. Dashed: the targets."
    drawn = figure(traces, y="time", log="y")
    return Section.of("times", "Times of requests", titles, rows, text, drawn)


def _classes(document: Values) -> Section:
    """Classes of service and how each is served."""
    rows = [
        {**row, "first": row["ttft_s"]["mean"], "last": row["e2e_s"]["mean"]}
        for row in document["classes"]
    ]
    titles = (
        "class=name | >priority | >requests | >meet the targets=slo_attainment_fraction? | "
        ">goodput=goodput_requests_per_s? | >first token, mean=first?:s | >whole, mean=last?:s"
    )
    return Section.of("classes", "Classes of service", titles, rows)


def _over_time(result: ServingResult) -> Iterator[Section]:
    """Requests in each stage, and power and cache in use."""
    stages = result.stage_counts()
    start_s = min(float(steps.time_s[0]) for steps in stages.values() if len(steps.time_s))
    end_s = result.duration_s
    requests = [Curve(name, _since(steps, start_s), number) for name, steps in stages.items()]
    used: list[Curve] = []
    if "power_w" in result.curves:
        used.append(Curve("power, W", _since(result.curves["power_w"], start_s), watts))
    if "cache_fraction" in result.curves:
        share = _since(result.curves["cache_fraction"], start_s)
        share = replace(share, value=100 * share.value)
        used.append(Curve("cache in use, %", share, number))
    text = f"{result.completed:,} requests that ended"
    yield curves_section(
        "requests", "Requests over time", requests, end_s, text, left=len(requests)
    )
    if used:
        text = "Mean power of all devices, and the share of all cache blocks that requests hold"
        yield curves_section("power", "Power and memory over time", used, end_s, text)


def _since(steps: StepFunction, start_s: float) -> StepFunction:
    return replace(steps, time_s=steps.time_s - start_s)


def _gap(metric: Values, end: str) -> float:
    value, other = metric["value"], metric[end]
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
    name, devices = f"replica of {d['device']}", d["plan"]["devices_per_replica"]
    option = LoadOption(name, full, hourly, devices=devices)
    text = say(
        "A replica at full use is taken to answer {full:number} requests/s: the rate of this run "
        "over its utilisation of {used:fraction}, an estimate that leaves batching out; "
        "accelsim serve --find max-rate simulates it.",
        {"full": full, "used": used},
    )
    return calculator_section([option], rate, "requests", text)
