"""``accelsim serve search``: the cheapest way to serve a load."""

from __future__ import annotations

from typing import Any

from accelsim.cli.progress import progress_bar
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.cli.serve import run_keywords
from accelsim.cli.serve_options import seconds
from accelsim.errors import InvalidValueError


@with_output
def serve_search(
    output_writer: ResultWriter,
    model: str,
    devices: str = "",
    rate: float | None = None,
    requests: int = 1000,
    process: str = "poisson",
    prompt: str = "lognormal:600:1.0",
    output: str = "lognormal:160:0.8",
    seed: int = 0,
    engine: str | None = None,
    precisions: str = "",
    tp: str = "1,2,4,8",
    pp: str = "1",
    ep: str = "",
    max_seqs: str | None = None,
    max_batch_tokens: str | None = None,
    slo_ttft: str | None = None,
    slo_tpot: str | None = None,
    slo_e2e: str | None = None,
    simulate: int = 4,
    *,
    keywords: dict[str, Any],
) -> None:
    """Find the cheapest way to serve a load: devices, ranks, limits of batches and formats."""
    from accelsim.report.serving_search import search_view
    from accelsim.serving.loads.arrivals import Arrivals
    from accelsim.serving.options import ServingOptions, SloTargets
    from accelsim.serving.search import SearchSpace, search

    lists = {"tp": tp, "pp": pp, "ep": ep, "max_seqs": max_seqs} | {
        "max_batch_tokens": max_batch_tokens
    }
    given = {name: _numbers(name, text) for name, text in lists.items() if text is not None}
    space = SearchSpace(_words(devices), _words(precisions), **given)
    slo = SloTargets(
        seconds("slo_ttft", slo_ttft), seconds("slo_tpot", slo_tpot), seconds("slo_e2e", slo_e2e)
    )
    load = Arrivals(
        rate_per_s=rate,
        users=None if rate is not None else 1,
        requests=requests,
        process=process,
        prompt=prompt,
        output=output,
    )
    with progress_bar("scoring", unit="layouts", quiet=output_writer.quiet) as told:
        result = search(
            model,
            load,
            ServingOptions(engine=engine, slo=slo),
            space,
            simulate=simulate,
            seed=seed,
            report=told,
            **run_keywords(keywords),
        )
    output_writer.note(
        f"{result.considered_count:,} configurations at {result.configurations_per_s:,.0f} per s"
    )
    rows: list[Any] | None = None
    if output_writer.wants_rows:
        rows = result.to_frame().to_dict("records")
    output_writer.emit(result.to_dict(), lambda: search_view(result), rows=rows)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(field: str, text: str) -> tuple[int, ...]:
    """Whole numbers between commas.

    Raises:
        InvalidValueError: If one is none.
    """
    try:
        return tuple(int(word) for word in _words(text))
    except ValueError:
        raise InvalidValueError(field, text, "whole numbers between commas: 1,2,4") from None
