"""``accelsim serve``: a load on a model, request by request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from accelsim.cli.progress import progress_bar
from accelsim.cli.result_writer import ResultWriter, with_output

if TYPE_CHECKING:
    from accelsim.planning.serving.result import ServingResult
    from accelsim.simulation.serving.requests import RequestColumns

__all__ = ["serve"]

_SHAPE_KEYWORDS: Final = ("batch", "seq_len", "output_len", "optimizer", "accumulation")
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


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
    requests_out: Path | None = None,
    *,
    keywords: dict[str, Any],
) -> None:
    """Simulate serving a load, request by request: times to tokens, rates, energy and cost."""
    from accelsim.planning.serving.options import ServingOptions, SloTargets
    from accelsim.planning.serving.serve import serve as serve_load
    from accelsim.simulation.serving.arrivals import Arrivals

    slo = SloTargets(
        _seconds("slo_ttft", slo_ttft),
        _seconds("slo_tpot", slo_tpot),
        _seconds("slo_e2e", slo_e2e),
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
        batch_window_s=_seconds("batch_window", batch_window),
        router=router,
        slo=slo,
    )
    run = _run_keywords(keywords)
    if arrivals is not None:
        _check_alone(arrivals, rate=rate, users=users, duration=duration, find=find)
        load: Arrivals | RequestColumns = _trace(output_writer, arrivals, requests)
    else:
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
        from accelsim.planning.serving.find import find as find_best

        found = find_best(find, model, device, load, options, seed=seed, **run)
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
                seed=seed,
                progress=lambda came, now_s: report(came, total, f"{now_s:,.0f} s simulated"),
                **run,
            )
    if requests_out is not None:
        from accelsim.report.output import write_frame

        write_frame(requests_out, result.to_requests(), force=output_writer.force)
    _emit(output_writer, result)


def _trace(output_writer: ResultWriter, path: Path, limit: int | None) -> RequestColumns:
    """Requests of a trace; what was left out is said."""
    from accelsim.simulation.serving.traces import read_trace

    trace = read_trace(path, limit)
    for reason, count in trace.skips.items():
        output_writer.note(f"{path}: {count:,} rows skipped: {reason}")
    return trace.requests


def _check_alone(path: Path, **others: Any) -> None:
    """Refuse options that a trace answers itself.

    Raises:
        InvalidValueError: Naming the first.
    """
    from accelsim.errors import InvalidValueError

    for name, value in others.items():
        if value is not None:
            remedy = f"Leave --{name} or --arrivals out."
            raise InvalidValueError(name, value, f"no value beside the trace {path}", remedy)


def _emit(output_writer: ResultWriter, result: ServingResult) -> None:
    from accelsim.report.serving import serving_view

    flat = {name: metric.value for name, metric in result.metrics.items()}
    words = {"workload": result.workload, "device": result.device, "engine": result.engine}
    output_writer.emit(result.to_dict(), lambda: serving_view(result), rows=[words | flat])


def _run_keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """Options of the run without the sizes, which the load's requests have.

    Raises:
        InvalidValueError: If a size is given.
    """
    from accelsim.errors import InvalidValueError

    for name in ("batch", "seq_len", "output_len"):
        if keywords[name] is not None:
            remedy = "Use --prompt and --output for lengths, --max-seqs for the batch."
            raise InvalidValueError(name, keywords[name], "no value when serving", remedy)
    return {name: value for name, value in keywords.items() if name not in _SHAPE_KEYWORDS}


def _lengths(model: str, prompt: str | None, output: str | None) -> dict[str, Any]:
    """Lengths as given; one item and no output for models that generate no tokens."""
    from accelsim import workload_catalog

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
    from accelsim.errors import InvalidValueError

    if duration is None:
        return 1000 if requests is None else requests
    if requests is not None or rate is None or duration <= 0:
        raise InvalidValueError("duration", duration, "seconds above 0, with --rate alone")
    return max(1, round(duration * rate))


def _seconds(field: str, text: str | None) -> float | None:
    """A time with its unit: 500ms, 2s.

    Raises:
        InvalidValueError: If it is none.
    """
    from accelsim.errors import InvalidValueError

    if text is None:
        return None
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(digits) * _UNITS_S[text[len(digits) :]]
    except (ValueError, KeyError):
        allowed = "a time with its unit, such as 500ms or 2s"
        raise InvalidValueError(field, text, allowed) from None
