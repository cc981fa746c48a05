"""``accelsim stacks``: list and show software stacks."""

from __future__ import annotations

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.option import argument, option

stacks = typer.Typer(name="stacks", help="List and show software stacks.", no_args_is_help=True)


@stacks.command("list")
@with_output
def list_stacks(
    output: ResultWriter,
    device: str | None = option("Only those that run on this device.", metavar="NAME"),
) -> None:
    """List all stacks with their versions, what they run on, what they fuse and their spread."""
    from accelsim import catalog
    from accelsim.catalog import stacks as stack_catalog
    from accelsim.report.stacks import STACK_COLUMNS, stack_row, stacks_table

    found = [stack_catalog.stack(name) for name in stack_catalog.stack_names()]
    usual = "without --stack: pytorch on CPUs and GPUs, the maker's compiler elsewhere"
    if device is not None:
        profile = catalog.device(device)
        found = [one for one in found if one.runs(profile)]
        usual = f"{profile.name} runs {stack_catalog.default_stack(profile).name} without --stack"
    rows = [stack_row(one) for one in found]
    note = f"{len(rows)} stacks; {usual}; the first version is the default"
    output.emit(rows, lambda: stacks_table(rows), columns=STACK_COLUMNS, note=note)


@stacks.command("show")
@with_output
def show_stack(
    output: ResultWriter,
    name: str = argument("Stack, or stack@version."),
) -> None:
    """Show one stack: its versions, ways to run, layouts, ratios and spreads."""
    from accelsim.catalog.stacks import stack
    from accelsim.report.stacks import stack_document, stack_view

    document = stack_document(stack(name))
    output.emit(document, lambda: stack_view(document), rows=document["ratios"])
