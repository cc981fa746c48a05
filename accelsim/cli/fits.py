"""``accelsim fits``: what of a model fits on a board, and the line that runs it."""

from __future__ import annotations

import typer

from accelsim.cli.entry import DOES_NOT_FIT
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.option import argument, option


@with_output
def fits(
    output: ResultWriter,
    model: str = argument("Workload that generates text: a name, or a file.", "MODEL"),
    device: str | None = option(
        "Device. Default: this machine's GPU, else its CPU.", None, "NAME", "--device -d"
    ),
    context: int | None = option(
        "Tokens of prompt and answer that must fit. Default: 4,096.", None, "N"
    ),
    memory: float | None = option(
        "Memory of the device in GiB, where it is sold with less than its profile has.",
        None,
        "GIB",
    ),
    hub: bool = option(
        "MODEL is an id of the Hugging Face Hub: its configuration is fetched, no weights.", False
    ),
    host: str | None = option(
        "CPU that runs the layers that do not fit. Default: this machine's, or a "
        "desktop's of 2022.",
        None,
        "NAME",
    ),
) -> None:
    """Say which formats of a model fit a device, how fast they are, and which command runs them."""
    from accelsim.handover.fits import fits as ask
    from accelsim.report.handover import fits_view

    model = f"hub:{model}" if hub else model
    result = ask(model, device, context=context, memory_gib=memory, host=host)
    output.emit(result, fits_view, rows=result.figures()["ways"])
    if result.best is None:
        raise typer.Exit(DOES_NOT_FIT)
