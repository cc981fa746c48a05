"""``accelsim serve``: a load on a model, request by request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.cli.entry import end_if_partial
from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import command_text
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.cli.progress import Report
    from accelsim.report.page import Page
    from accelsim.serving.loads.arrivals import Arrivals
    from accelsim.serving.loads.requests import RequestColumns
    from accelsim.serving.result import ServingResult
    from accelsim.serving.steps.fitted_steps import FittedSteps

_SHAPE_KEYWORDS = ("batch", "seq_len", "output_len", "steps")


@with_output
def serve(
    output_writer: ResultWriter,
    model: str,
    device: str,
    rate: float | None = None,
    users: int | None = None,
    requests: int | None = None,
    duration: float | None = None,
    process: str = "poisson",
    cv: float = 2.0,
    prompt: str | None = None,
    output: str | None = None,
    turns: int = 1,
    seed: int = 0,
    engine: str | None = None,
    replicas: int = 1,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    cluster: str | None = None,
    max_batch_tokens: int | None = None,
    max_seqs: int | None = None,
    memory_fraction: float | None = None,
    batch_window: str | None = None,
    router: str = "least-outstanding",
    slo_ttft: str | None = None,
    slo_tpot: str | None = None,
    slo_e2e: str | None = None,
    arrivals: Path | None = None,
    find: str | None = None,
    step_times: Path | None = None,
    requests_out: Path | None = None,
    trace: Path | None = None,
    dp: int = 1,
    prefill_device: str | None = None,
    prefill_replicas: int = 1,
    prefill_tp: int = 1,
    kv_link: str | None = None,
    pool: list[str] | None = None,
    autoscale: str | None = None,
    provisioning: str | None = None,
    storage: str = "network",
    failures: str | None = None,
    spot: str | None = None,
    max_outstanding: int | None = None,
    preemption: str = "recompute",
    host_cache: str | None = None,
    speculate: str | None = None,
    adapters: str | None = None,
    *,
    keywords: Document,
) -> None:
    """Simulate serving a load, request by request: times to tokens, rates, energy and cost."""
    from accelsim.cli import serve_options as parse
    from accelsim.files.output import check_output
    from accelsim.serving.loads.arrivals import Arrivals
    from accelsim.serving.options import ServingOptions, SloTargets
    from accelsim.serving.serve import serve as serve_load

    slo = SloTargets(
        parse.seconds("slo_ttft", slo_ttft),
        parse.seconds("slo_tpot", slo_tpot),
        parse.seconds("slo_e2e", slo_e2e),
    )
    options = ServingOptions(
        engine=engine,
        replicas=replicas,
        tp=tp,
        pp=pp,
        ep=ep,
        cluster=cluster,
        max_batch_tokens=max_batch_tokens,
        max_seqs=max_seqs,
        memory_fraction=memory_fraction,
        batch_window_s=parse.seconds("batch_window", batch_window),
        router=router,
        slo=slo,
        dp=dp,
        prefill=parse.prefill(prefill_device, prefill_replicas, prefill_tp, kv_link),
        pools=tuple(parse.pool(text) for text in pool or ()),
        autoscale=parse.autoscale(autoscale),
        provisioning_s=parse.seconds("provisioning", provisioning),
        storage=storage,
        outages=parse.outages(failures, spot),
        max_outstanding=max_outstanding,
        preemption=preemption,
        host_cache_bytes=parse.gigabytes("host_cache", host_cache),
        speculation=parse.speculation(speculate),
        adapters=parse.adapters(adapters),
    )
    for path in filter(None, (requests_out, trace)):
        check_output(path, force=output_writer.force)
    run = run_keywords(keywords)
    steps = None if step_times is None else _measured_steps(step_times, device)
    if arrivals is not None:
        _check_alone(arrivals, users=users, duration=duration, find=find)
        drawn = None if rate is None else Arrivals(rate_per_s=rate, process=process, cv=cv)
        load: Arrivals | RequestColumns = _trace(output_writer, arrivals, requests, drawn, seed)
    else:
        if find == "max-rate" and rate is None and users is None:
            rate = 1.0  # where the search starts
        load = Arrivals(
            rate_per_s=rate,
            users=users,
            requests=_count(requests, duration, rate),
            process=process,
            cv=cv,
            turns=turns,
            **_lengths(model, prompt, output),
        )
    if find is not None and isinstance(load, Arrivals):
        from accelsim.serving.find import find as find_best

        with progress_bar("searching", quiet=output_writer.quiet):
            found = find_best(find, model, device, load, options, steps=steps, seed=seed, **run)
        output_writer.note(found.sentence)
        result = found.result
    else:
        total = load.requests if isinstance(load, Arrivals) else len(load)
        with progress_bar("simulating", unit="requests", quiet=output_writer.quiet) as report:
            result = serve_load(
                model,
                device,
                load,
                options,
                steps=steps,
                seed=seed,
                progress=_told(report, total),
                **run,
            )
    if requests_out is not None:
        from accelsim.files.output import write_frame

        write_frame(requests_out, result.to_requests(), force=output_writer.force)
        output_writer.wrote(requests_out)
    if trace is not None:
        from accelsim.simulation.timeline import write_trace

        write_trace(result.to_timeline(), trace, force=output_writer.force)
        output_writer.wrote(trace, "; open it at https://ui.perfetto.dev")
    asked = {"steps": steps, "seed": seed, **run}

    def page() -> Page:
        from accelsim.exploration.sensitivity.load import load_changes
        from accelsim.report.formats import plain_values
        from accelsim.report.serving_page import serving_page

        changes = []
        if find is None:
            changes = load_changes(model, device, load, options, result, **asked)
        return serving_page(plain_values(result.to_dict()), command_text(), result, changes)

    _emit(output_writer, result, page)
    end_if_partial(result.warnings)


def _told(report: Report, total: int) -> Callable[[int, float], None]:
    """A report of the simulation, then of those at both ends of the interval of its step times."""
    titles = iter(("simulating", "its faster end", "its slower end"))
    title, last = next(titles), 0

    def told(came: int, now_s: float) -> None:
        nonlocal title, last
        if came <= last:
            title = next(titles, title)
        last = came
        report(came, total, f"{now_s:,.0f} s simulated", title)

    return told


def _measured_steps(path: Path, device: str) -> FittedSteps:
    """Step times of a file, at the idle power of the device."""
    from accelsim import catalog
    from accelsim.cost.idle import idle_power_w
    from accelsim.serving.steps.fitted_steps import fit_steps
    from accelsim.serving.steps.server_run import read_step_times

    return fit_steps(read_step_times(path), idle_power_w(catalog.device(device)))


def _trace(
    output_writer: ResultWriter, path: Path, limit: int | None, drawn: Arrivals | None, seed: int
) -> RequestColumns:
    """Requests of a trace, at a rate of their own where one is given; what was left out is said.

    Raises:
        InvalidValueError: If there is neither a rate nor times in the file.
    """
    from accelsim.serving.loads.traces import read_trace
    from accelsim.simulation.randomness import RandomStreams

    trace = read_trace(path, limit)
    for reason, count in trace.skips.items():
        output_writer.note(f"{path}: {count:,} rows skipped: {reason}")
    if trace.unsorted_count:
        output_writer.note(f"{path}: {trace.unsorted_count:,} rows out of order: sorted by time")
    if drawn is not None:
        return trace.at(drawn.times(len(trace.requests), RandomStreams(seed)))
    if not trace.has_times:
        remedy = "Add --rate, at which its lengths come."
        raise InvalidValueError("arrivals", str(path), "a file with times", remedy)
    return trace.requests


def _check_alone(path: Path, **others: Any) -> None:
    """Refuse options that a trace answers itself.

    Raises:
        InvalidValueError: Naming the first.
    """
    for name, value in others.items():
        if value is not None:
            remedy = f"Leave --{name} or --arrivals out."
            raise InvalidValueError(name, value, f"no value beside the trace {path}", remedy)


def _emit(output_writer: ResultWriter, result: ServingResult, page: Callable[[], Page]) -> None:
    from accelsim.report.serving import serving_view

    flat = {name: metric.value for name, metric in result.metrics.items()}
    words = {"workload": result.workload, "device": result.device, "engine": result.engine}
    output_writer.emit(
        result.to_dict(), lambda: serving_view(result), rows=[words | flat], page=page
    )


def run_keywords(keywords: Document) -> Document:
    """Options of the run without the sizes, which the load's requests have.

    Raises:
        InvalidValueError: If a size is given.
    """
    for name in _SHAPE_KEYWORDS:
        if keywords[name] is not None:
            remedy = "Use --prompt and --output for lengths, --max-seqs for the batch."
            raise InvalidValueError(name, keywords[name], "no value when serving", remedy)
    return {name: value for name, value in keywords.items() if name not in _SHAPE_KEYWORDS}


def _lengths(model: str, prompt: str | None, output: str | None) -> Document:
    """Lengths as given; one item and no output for models that generate no tokens."""
    from accelsim.catalog import workloads as workload_catalog

    given = {"prompt": prompt, "output": output}
    found = {name: text for name, text in given.items() if text is not None}
    if workload_catalog.workload(model).autoregressive:
        return found
    return {"prompt": "1", "output": "0"} | found


def _count(requests: int | None, duration: float | None, rate: float | None) -> int:
    """Requests to draw.

    Raises:
        InvalidValueError: If a duration stands beside a number of requests, or without a rate.
    """
    if duration is None:
        return 1000 if requests is None else requests
    if requests is not None or rate is None or duration <= 0:
        raise InvalidValueError("duration", duration, "seconds above 0, with --rate alone")
    return max(1, round(duration * rate))
