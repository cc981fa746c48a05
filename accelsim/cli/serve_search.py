"""``accelsim serve search``: the cheapest way to serve a load."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.cli.serve import check_no_sizes, trace_requests
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.options import ServingOptions, SloTargets
from accelsim.serving.search_space import SearchSpace


@frozen
class Server:
    """What every layout is served by."""

    engine: str | None = option(
        "Engine: vllm, sglang or tensorrt-llm. NAME@VERSION takes an older version.", metavar="NAME"
    )
    kv_blocks: int | None = option("Cache blocks of a replica, as in serve.")


@with_output
def serve_search(
    output_writer: ResultWriter,
    load: Annotated[Document, Arrivals, "users"],
    space: SearchSpace,
    slo: SloTargets,
    server: Server,
    run: RunOptions,
    price: PriceChoice,
    model: str = argument("Workload name or file.", "MODEL"),
    rate: float | None = option(
        "Requests per second that the replicas serve together. Default: full "
        "batches of one replica."
    ),
    trace: Path | None = option(
        "Trace of requests, as in serve; with --rate at that rate.", None, "FILE", "--arrivals"
    ),
    seed: int = option("Seed of the random numbers.", 0),
    simulate: int = option("Number of layouts to simulate.", 4),
) -> None:
    """Find the cheapest way to serve a load: devices, ranks, limits of batches and formats."""
    from accelsim.files.formats import OutputFormat, records
    from accelsim.report.serving_search import search_view
    from accelsim.serving.search import search

    check_no_sizes(run)
    drawn = Arrivals(**load, rate_per_s=rate, users=None if rate is not None else 1)
    arrivals: Arrivals | RequestColumns = drawn
    if trace is not None:
        rated = None if rate is None else drawn
        arrivals = trace_requests(output_writer, trace, load.get("requests"), rated, seed)
    options = ServingOptions(slo=slo, **asdict(server))
    with output_writer.progress("scoring", "layouts") as report:
        result = search(
            *(model, arrivals, options, space, run, price),
            simulate=simulate,
            seed=seed,
            report=report,
        )
    output_writer.note(
        f"{result.considered_count:,} configurations at {result.configurations_per_s:,.0f} per s"
    )
    rows: list[Document] | None = None
    if output_writer.output_format is OutputFormat.CSV:
        rows = records(result.to_frame())
    output_writer.emit(result, search_view, rows=rows)
