"""``accelsim check``: whether a line of an engine or trainer fits, and what it costs."""

from __future__ import annotations

from typing import Annotated

import typer

from accelsim.cli.entry import DOES_NOT_FIT
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.economics.device_price import PriceChoice
from accelsim.option import argument, option
from accelsim.plain import Document
from accelsim.serving.loads.arrivals import Arrivals


@with_output
def check(
    output: ResultWriter,
    load: Annotated[Document, Arrivals],
    price: PriceChoice,
    line: str = argument(
        "The line in quotes, or a file that holds it: vllm serve, python -m sglang.launch_server, "
        "trtllm-serve, or torchrun with torchtitan or Megatron-LM.",
        "LINE",
    ),
    device: str | None = option(
        "Device of every rank; its memory and price.", None, "NAME", "--device -d"
    ),
    model: str | None = option("Workload, where the line names none or another.", None, "NAME"),
    engine_version: str | None = option(
        "Version whose options count; the newest that is listed if none.", None, "X.Y.Z"
    ),
) -> None:
    """Say whether a line that starts an engine or a trainer fits, and what it costs."""
    from accelsim.handover.check import LineQuestion, check_line, line_text
    from accelsim.report.handover import check_view

    question = LineQuestion(device, model, engine_version, asked_load(load), price)
    result = check_line(line_text(line), question)
    output.emit(
        result.to_dict(),
        lambda: check_view(result),
        rows=result.figures()["problems"],
        columns=("option", "problem", "remedy"),
    )
    if not result.fits:
        raise typer.Exit(DOES_NOT_FIT)


def asked_load(load: Document) -> Arrivals | None:
    """The load that options say, of the usual users where they name no rate; None of none."""
    from accelsim.handover.check import USUAL_USERS

    is_rated = bool(load.keys() & {"rate_per_s", "users"})
    said = load if is_rated else {**load, "users": USUAL_USERS}
    return Arrivals(**said) if load else None
