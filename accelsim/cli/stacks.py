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

    entries = [stack_catalog.stack(name) for name in stack_catalog.stack_names()]
    usual = (
        "without --stack: pytorch on CPUs and GPUs, compiled, and an engine for language models on "
        "GPUs; the maker's compiler elsewhere"
    )
    if device is not None:
        profile = catalog.device(device)
        entries = [entry for entry in entries if entry.runs(profile)]
        default = stack_catalog.default_stack
        names = [default(profile, is_served=served).name for served in (False, True)]
        engine = "" if len(set(names)) == 1 else f" (language models: {names[1]})"
        usual = f"{profile.name} runs {names[0]}{engine} without --stack"
    rows = [stack_row(entry) for entry in entries]
    note = f"{len(rows)} stacks; {usual}; the first version is the default"
    output.emit(rows, stacks_table, columns=STACK_COLUMNS, note=note)


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
    output.emit(document, stack_view, rows=document["ratios"])


@stacks.command("engines")
@with_output
def list_engines(
    output: ResultWriter,
    device: str = option("Device whose memory decides the limits.", "h100-sxm-80gb"),
) -> None:
    """List the engines of accelsim serve by version: limits of their batches, share of the memory,
    host time per step, and where that was read.
    """
    from accelsim import catalog
    from accelsim.report.stacks import engine_rows, engines_table

    profile = catalog.device(device)
    rows = engine_rows(profile)
    note = f"limits and memory on one {profile.name}; each engine's first version is the default"
    output.emit(rows, engines_table, note=note)
