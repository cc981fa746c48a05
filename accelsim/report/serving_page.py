"""The page of a served load: whether it keeps its targets, its times to tokens with their
intervals and the targets as lines, and what it costs at other loads.

The operators that it shows are those of the steps that a load takes: a prompt of its mean length,
and one further token of as many sequences as are under way on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.estimation.passes import run_passes
from accelsim.estimation.simulate import simulated
from accelsim.plain import Document, Values
from accelsim.quantity import Writer, number, say, watts
from accelsim.report.calculator import calculator_section
from accelsim.report.curves import Curve, curves_section
from accelsim.report.operators import OperatorRun, energy_section, roofline_section
from accelsim.report.page import Page, Section, figure, limit_line, points
from accelsim.report.parts import COLOURS, mapping_section, metrics_section, provenance_sections
from accelsim.report.result_page import known_devices
from accelsim.report.run_page import operator_frame
from accelsim.report.run_sections import offers_section
from accelsim.report.serving import MONTH, TIMES
from accelsim.serving.result import deployment_words

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.serving.result import ServingResult
    from accelsim.simulation.timeline import StepFunction

_CLASSES = (
    "class=name | >priority | >requests | >meet the targets=slo_attainment_fraction? | "
    ">goodput=goodput_requests_per_s? | >first token, mean={ttft_s.mean?:s} | "
    ">whole, mean={e2e_s.mean?:s}"
)
_TIMES = (
    "[, first token {ttft_s.p50} (p50), {ttft_s.p99} (p99)][, further token {tpot_s.p50} "
    "(p50), {tpot_s.p99} (p99)][, whole request {e2e_s.p50} (p50), {e2e_s.p99} (p99)]."
)


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
        Section.of("classes", "Classes of service", _CLASSES, document.get("classes", ())),
        *([*_over_time(result), *_step_sections(result)] if result is not None else ()),
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
        f"{group} {name}": value
        for group, values in inputs.items()
        for name, value in (values if isinstance(values, Mapping) else {"": values}).items()
    }


def _decision(d: Values) -> Iterator[str]:
    met, wanted = d["slo_attainment_fraction"], d["inputs"]["options"]["slo"]["attainment_fraction"]
    values = {**d, "where": f"{_deployed(d)} with {d['engine']}"}
    if met is None:
        yield say("{where} answers {throughput_requests_per_s} requests/s.", values)
    else:
        keeps = "keeps" if met >= wanted else "does not keep"
        text = (
            f"{{where}} {keeps} the targets: {{slo_attainment_fraction}} of the requests meet them."
        )
        yield say(text, values)
    yield say(f"A month at this load: {MONTH}.", d)
    if d["saturated"]:
        yield "It is overloaded: the queue grows as long as the load lasts."
    yield f"Times: {say(_TIMES, d)[2:]}"
    yield say(
        "Utilisation {utilisation_fraction}; energy {energy_j_per_token} per token, "
        "{average_power_w}; cost {cost_usd_per_1000_requests} per 1,000 requests.",
        d,
    )


def _deployed(d: Values) -> str:
    """Replicas, devices and instances of the first pool."""
    pool, *further_pools = d["pools"]
    instances = None if further_pools else d["instances"]
    return deployment_words(d["device"], d["replicas"], pool["devices"], d["plan"], instances)


def _times(document: Values) -> Section:
    """Percentiles of each time, its target as a line, its interval as a bar."""
    rows: list[Document] = []
    traces: list[Document] = []
    for colour, (name, title) in zip(COLOURS, TIMES.items(), strict=False):
        target_s = document["inputs"]["options"]["slo"].get(name)
        about = {"time": title, "target_s": target_s}
        percentiles = [
            {**about, "part": percentile, **document["metrics"][f"{name}.{percentile}"]}
            for percentile, value in document[name].items()
            if value is not None
        ]
        if not percentiles:
            continue
        rows += percentiles
        above, below = ([_gap(row, end) for row in percentiles] for end in ("high", "low"))
        traces.append(
            points(
                title,
                percentiles,
                "part",
                "value",
                "lines+markers",
                error_y={"type": "data", "symmetric": False, "array": above, "arrayminus": below},
                line={"color": colour},
            )
        )
        if target_s is not None:
            parts = [row["part"] for row in percentiles]
            traces.append(limit_line(f"target, {title}", parts, [target_s] * len(parts)))
    titles = (
        "time | of requests=part | >value=value:s | >low=low?:s | >high=high?:s | >target=target_s?"
    )
    text = "Bars: 90 % interval from the error of the step times. Dashed: the targets."
    picture = figure(traces, y="time", log="y")
    return Section.of("times", "Times of requests", titles, rows, text, picture)


def _gap(metric: Values, end: str) -> float:
    value, other = metric["value"], metric[end]
    return 0.0 if value is None or other is None else abs(other - value)


def _over_time(result: ServingResult) -> Iterator[Section]:
    """Requests in each stage, and power and cache in use."""
    stages = result.stage_counts()
    start_s = min(float(steps.time_s[0]) for steps in stages.values() if len(steps.time_s))

    def curve(name: str, steps: StepFunction, write: Writer, scale: float = 1.0) -> Curve:
        shifted = replace(steps, time_s=steps.time_s - start_s, value=scale * steps.value)
        return Curve(name, shifted, write)

    requests = [curve(name, steps, number) for name, steps in stages.items()]
    yield curves_section(
        "requests",
        "Requests over time",
        requests,
        result.duration_s,
        f"{result.completed:,} requests that ended",
        left=len(requests),
    )
    used: list[Curve] = []
    if "power_w" in result.curves:
        used.append(curve("power, W", result.curves["power_w"], watts))
    if "cache_fraction" in result.curves:
        used.append(curve("cache in use, %", result.curves["cache_fraction"], number, 100))
    if used:
        text = "Mean power of all devices, and the share of all cache blocks that requests hold"
        title = "Power and memory over time"
        yield curves_section("power", title, used, result.duration_s, text)


def _step_sections(result: ServingResult) -> list[Section]:
    """Roofline of the steps' operators, and their time and energy by kind."""
    runs = step_runs(result)
    text = "Means of the load, a step of each on one rank, as the model predicts it."
    title = "Time and energy of a step by kind of operator"
    return [
        roofline_section(runs, text, title="Roofline of the steps"),
        energy_section(runs, "kind", name="by-kind", title=title),
    ]


def step_runs(result: ServingResult) -> list[OperatorRun]:
    """Operators of a step of prompts and of one of further tokens; of models that generate no
    tokens, of one batch.

    Args:
        result: A served load with its requests.
    """
    prompt_run, further_run = result.runs["prompts"], result.runs["further"]
    if not further_run.workload.autoregressive:
        batch = _mean_under_way(result, "prompt")
        run = replace(prompt_run, batch=batch)
        return [_operators(f"batch of {batch:,}", run, "forward")]
    frame = result.to_requests()
    prompt, output = (
        max(round(frame[column].mean()), 1) for column in ("prompt_tokens", "output_tokens")
    )
    run = replace(prompt_run, batch=1, seq_len=prompt, output_len=1)
    steps = [_operators(f"prompt of {prompt:,}", run, "prefill")]
    if output > 1:
        count = _mean_under_way(result, "further tokens")
        run = replace(further_run, batch=count, seq_len=prompt + output // 2, output_len=2)
        steps.append(_operators(f"further token of {count:,}", run, "decode"))
    return steps


def _operators(name: str, run: ResolvedRun, pass_name: str) -> OperatorRun:
    passes = run_passes(run)
    wanted = tuple(run_pass for run_pass in passes.passes if run_pass.name == pass_name)
    frame = operator_frame(simulated(run, replace(passes, passes=wanted)))
    return OperatorRun(run.device, run.precision.name, frame, name)


def _mean_under_way(result: ServingResult, stage: str) -> int:
    """Requests in a stage on one replica, mean over the time in which there are any."""
    steps = result.stage_counts()[stage]
    lasts_s, count = np.diff(steps.time_s), steps.value[:-1]
    busy_s = lasts_s[count > 0].sum()
    mean = (count * lasts_s).sum() / busy_s / result.replicas if busy_s else 1.0
    return max(round(float(mean)), 1)


def _offers(d: Values) -> Section | None:
    """Cost and carbon of a request at this load; None where several devices share it."""
    if len({pool["device"] for pool in d["pools"]}) > 1:
        return None
    device_count = d["replicas"] * d["plan"]["devices_per_replica"]
    energy_j, completed, rate_per_s = (
        d[name] for name in ("energy_j", "completed", "throughput_requests_per_s")
    )
    per_request_j = energy_j / completed if energy_j is not None and completed else None
    rate_of_one = rate_per_s and rate_per_s / device_count
    return offers_section([(d["device"], rate_of_one, per_request_j)], "requests")


def _calculator(d: Values) -> Section | None:
    """Cost at other loads.

    Estimate: the rate at full utilisation is the rate now over the share used; batching, which
    would raise it, is left out.
    """
    rate_per_s, used = d["throughput_requests_per_s"], d["utilisation_fraction"]
    usd_per_1000 = d["cost_usd_per_1000_requests"]
    if not rate_per_s or not used or usd_per_1000 is None:
        return None
    hourly_usd = usd_per_1000 / 1e3 * rate_per_s * SECONDS_PER_HOUR / d["replicas"]
    full_per_s = rate_per_s / used / d["replicas"]
    name, devices = f"replica of {d['device']}", d["plan"]["devices_per_replica"]
    text = say(
        "A replica at full use is taken to answer {full:number} requests/s: the rate of this run "
        "over its utilisation of {used:fraction}, an estimate that leaves batching out; "
        "accelsim serve --find max-rate simulates it.",
        {"full": full_per_s, "used": used},
    )
    option = LoadOption(name, full_per_s, hourly_usd, devices=devices)
    return calculator_section([option], rate_per_s, "requests", text)
