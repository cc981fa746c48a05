"""``accelsim check``: whether a line of an engine or trainer fits, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from accelsim.cli.entry import DOES_NOT_FIT
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.economics.device_price import PriceChoice
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document
from accelsim.serving.loads.arrivals import Arrivals

if TYPE_CHECKING:
    from accelsim.handover.check import LineQuestion


@frozen
class LineWords:
    """What is said of a line beside it."""

    device: str | None = option(
        "Device of every rank; its memory and price count.",
        metavar="NAME",
        flags="--device -d",
    )
    model: str | None = option("Workload, where the line names none or another.", metavar="NAME")
    engine_version: str | None = option(
        "Version whose options count. Default: the newest listed.",
        metavar="X.Y.Z",
    )

    def question(self, load: Document, price: PriceChoice) -> LineQuestion:
        """What is asked: of the usual users where a load names no rate."""
        from accelsim.handover.check import USUAL_USERS, LineQuestion

        is_rated = bool(load.keys() & {"rate_per_s", "users"})
        rated = load if is_rated else {**load, "users": USUAL_USERS}
        drawn = Arrivals(**rated) if load else None
        return LineQuestion(self.device, self.model, self.engine_version, drawn, price)


@with_output
def check(
    output: ResultWriter,
    line_words: LineWords,
    load: Annotated[Document, Arrivals],
    price: PriceChoice,
    line: str = argument(
        "The line in quotes, or a file that holds it: vllm serve, python -m sglang.launch_server, "
        "trtllm-serve, or torchrun with torchtitan or Megatron-LM.",
        "LINE",
    ),
) -> None:
    """Say whether a command line of an engine or a trainer fits, and what it costs."""
    from accelsim.handover.check import check_line, line_text
    from accelsim.report.handover import check_view

    result = check_line(line_text(line), line_words.question(load, price))
    output.emit(
        result,
        check_view,
        rows=result.figures()["problems"],
        columns=("option", "problem", "remedy"),
    )
    if not result.fits:
        raise typer.Exit(DOES_NOT_FIT)
