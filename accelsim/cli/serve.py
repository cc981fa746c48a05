"""``accelsim serve``: a load on a model, request by request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from accelsim.cli.entry import end_if_partial
from accelsim.cli.result_writer import ResultWriter, with_handover
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.option import REQUIRED, argument, option, seconds
from accelsim.plain import Document
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import PrefillOptions, ServingOptions
from accelsim.serving.replicas.outages import OutagePolicy

if TYPE_CHECKING:
    from accelsim.cli.progress import Report
    from accelsim.report.page import Page
    from accelsim.serving.loads.requests import RequestColumns
    from accelsim.serving.result import ServingResult
    from accelsim.serving.steps.fitted_steps import FittedSteps

_SHAPE = ("batch", "seq_len", "output_len", "steps", "images")


def _spot(name: str, text: str) -> OutagePolicy:
    """Losses of spot replicas as a mean time between them with the notice they get (``6h`` or
    ``6h:30s``; two minutes where none is given).
    """
    between, _, notice = text.partition(":")
    return OutagePolicy(seconds(name, between), seconds(name, notice or "2min"), is_spot=True)


@frozen
class LoadOptions:
    """What is asked of a load, and written of it."""

    duration: float | None = option(
        "Simulated time in which requests come; instead of --requests.", metavar="SECONDS"
    )
    seed: int = option("Seed of the random numbers.", 0)
    arrivals: Path | None = option(
        "Trace of requests: CSV, JSON lines or JSON (Azure, Mooncake, vLLM's benchmark, "
        "ShareGPT, or arrival_s, prompt_tokens, output_tokens); with --rate at that rate.",
        metavar="FILE",
    )
    find: str | None = option(
        "Search under the --slo targets: max-rate; or, for --rate, min-replicas, "
        "cheapest (ranks and replicas) or limits (batches, memory).",
        metavar="WHAT",
    )
    step_times: Path | None = option(
        "Use measured steps instead of predicted steps: a CSV of prefill_tokens, "
        "prefill_context_sum, decode_count, decode_context_sum, s, J (see learn "
        "steps).",
        metavar="FILE",
    )
    requests_out: Path | None = option(
        "Write a row per request to this CSV or Parquet file.", metavar="FILE"
    )
    trace: Path | None = option(
        "Write the requests as a trace for Perfetto: waiting, prompt, further tokens.",
        metavar="FILE",
    )
    failures: float | None = option(
        "Mean time between failures of a replica, such as 500h.", metavar="TIME", parse=seconds
    )
    spot: OutagePolicy | None = option(
        "Mean time until a spot replica is taken back, with its notice: 6h or 6h:30s.",
        metavar="TIME",
        parse=_spot,
    )

    def outages(self) -> OutagePolicy | None:
        """How replicas are lost.

        Raises:
            InvalidValueError: If two ways are given.
        """
        if self.failures is None:
            return self.spot
        if self.spot is not None:
            raise InvalidValueError("spot", self.spot.mean_time_s, "no value beside --failures")
        return OutagePolicy(self.failures)


@with_handover
def serve(
    output_writer: ResultWriter,
    load_options: LoadOptions,
    load: Annotated[Document, Arrivals],
    options: ServingOptions,
    prefill: PrefillOptions,
    run: RunOptions,
    price: PriceChoice,
    model: str = argument("Workload name or file.", "MODEL"),
    device: str = option("Device of every rank.", REQUIRED, "NAME", "--device -d"),
) -> None:
    """Simulate serving a load, request by request: times to tokens, rates, energy and cost."""
    from accelsim.files.output import check_output

    if prefill.device is not None:
        options = replace(options, prefill=prefill)
    elif prefill != PrefillOptions():
        allowed = "a device, beside --prefill-replicas, --prefill-tp and --kv-link"
        raise InvalidValueError("prefill_device", None, allowed, "Name the prompts' device.")
    options = replace(options, outages=load_options.outages())
    for path in filter(None, (load_options.requests_out, load_options.trace)):
        check_output(path, force=output_writer.force)
    check_no_sizes(run)
    question = (model, device, _load(output_writer, model, load, load_options), options)
    answer = partial(
        _answer,
        output_writer,
        load_options.find,
        question,
        price=price,
        steps=None
        if load_options.step_times is None
        else _measured_steps(load_options.step_times, device),
        seed=load_options.seed,
    )
    result = answer(run=run)
    plain = None if run.learned is None else answer(run=replace(run, learned=None))
    _write_files(output_writer, result, load_options)

    def page(document: Document, command: str) -> Page:
        from accelsim.report.serving_page import serving_page

        return serving_page(document, command, result)

    from accelsim.report.serving import serving_view

    names = {"workload": result.workload, "device": result.device, "engine": result.engine}
    figures = {name: metric.value for name, metric in result.metrics.items()}
    rows = [names | figures]
    output_writer.emit_learned(result, serving_view, plain, rows=rows, page=page)
    end_if_partial(result.warnings)


def _load(
    output_writer: ResultWriter, model: str, load: Document, load_options: LoadOptions
) -> Arrivals | RequestColumns:
    """The load that is asked for: drawn, or that of a trace."""
    if load_options.arrivals is not None:
        _check_alone(load_options.arrivals, users=load.get("users"), duration=load_options.duration)
        drawn = {name: load[name] for name in ("rate_per_s", "process", "cv") if name in load}
        rated = Arrivals(**drawn) if "rate_per_s" in load else None
        limit = load.get("requests")
        return trace_requests(output_writer, load_options.arrivals, limit, rated, load_options.seed)
    if load_options.find == "max-rate" and not {"rate_per_s", "users"} & load.keys():
        load = {**load, "rate_per_s": 1.0}  # where the search starts
    return Arrivals(**_lengths(model) | load | _count(load_options.duration, load))


def _answer(
    output_writer: ResultWriter,
    find: str | None,
    question: tuple[str, str, Arrivals | RequestColumns, ServingOptions],
    **keywords: Any,
) -> ServingResult:
    """The load as it is served, or the best way found."""
    from accelsim.serving.find import find as find_best
    from accelsim.serving.serve import serve as serve_load

    if find is not None:
        with output_writer.progress("searching"):
            best = find_best(find, *question, **keywords)
        output_writer.note(best.sentence)
        return best.result
    load = question[2]
    total = load.requests if isinstance(load, Arrivals) else len(load)
    with output_writer.progress("simulating", "requests") as report:
        return serve_load(*question, progress=_progress(report, total), **keywords)


def _write_files(
    output_writer: ResultWriter, result: ServingResult, load_options: LoadOptions
) -> None:
    if load_options.requests_out is not None:
        from accelsim.files.output import write_frame

        write_frame(load_options.requests_out, result.to_requests(), force=output_writer.force)
        output_writer.wrote(load_options.requests_out)
    if load_options.trace is not None:
        result.to_timeline().to_perfetto(load_options.trace, force=output_writer.force)
        output_writer.wrote(load_options.trace, "; open it at https://ui.perfetto.dev")
    if output_writer.folder is not None:
        from accelsim.capacity.assignment import of_serving

        output_writer.hand_over([of_serving(result)])


def _progress(report: Report, total: int | None) -> Callable[[int, float], None]:
    """A report of the simulation, then of those at both ends of the interval of its step times."""
    titles = iter(("simulating", "its faster end", "its slower end"))
    title, last_count = next(titles), 0

    def progress(count: int, now_s: float) -> None:
        nonlocal title, last_count
        if count <= last_count:
            title = next(titles, title)
        last_count = count
        report(count, total, f"{now_s:,.0f} s simulated", title)

    return progress


def _measured_steps(path: Path, device: str) -> FittedSteps:
    """Step times of a file, at the idle power of the device."""
    from accelsim import catalog
    from accelsim.cost.idle import idle_power_w
    from accelsim.serving.steps.fitted_steps import fit_steps
    from accelsim.serving.steps.server_run import read_step_times

    return fit_steps(read_step_times(path), idle_power_w(catalog.device(device)))


def trace_requests(
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
        return trace.at(drawn.times(trace.requests.start_count, RandomStreams(seed)))
    if not trace.has_times:
        remedy = "Add --rate, at which its lengths come."
        raise InvalidValueError("arrivals", str(path), "a file with times", remedy)
    return trace.requests


def _check_alone(path: Path, **others: object) -> None:
    """Refuse options that a trace answers itself.

    Raises:
        InvalidValueError: Naming the first.
    """
    for name, value in others.items():
        if value is not None:
            remedy = f"Leave --{name} or --arrivals out."
            raise InvalidValueError(name, value, f"no value beside the trace {path}", remedy)


def check_no_sizes(run: RunOptions) -> None:
    """Refuse sizes, which the load's requests have.

    Raises:
        InvalidValueError: If a size is given.
    """
    for name, value in asdict(run.shape).items():
        if name in _SHAPE and value is not None:
            remedy = "Use --prompt and --output for lengths, --max-seqs for the batch."
            raise InvalidValueError(name, value, "no value when serving", remedy)


def _lengths(model: str) -> Document:
    """One item and no output, for models that generate no tokens."""
    from accelsim.catalog import workloads as workload_catalog

    is_language = workload_catalog.workload(model).autoregressive
    return {} if is_language else {"prompt": "1", "output": "0"}


def _count(duration: float | None, load: Document) -> Document:
    """Requests to draw in a time.

    Raises:
        InvalidValueError: If a duration stands beside a number of requests, or without a rate.
    """
    if duration is None:
        return {}
    if "requests" in load or "rate_per_s" not in load or duration <= 0:
        raise InvalidValueError("duration", duration, "seconds above 0, with --rate alone")
    return {"requests": max(1, round(duration * load["rate_per_s"]))}
