"""``accelsim sweep``: many estimates, kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["sweep"]


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="Sweep (YAML or JSON).")],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the results; gone on with.")
    ],
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes; as many as CPUs if none.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but the result.")
    ] = False,
) -> None:
    """Estimate all points of a sweep, kept as Parquet; run again, it goes on where it stopped."""
    from accelsim.cli.progress import progress_bar
    from accelsim.planning.sweep.run import sweep as run_sweep
    from accelsim.result import json_text

    with progress_bar("sweep", unit="points", quiet=quiet) as report:
        result = run_sweep(
            spec, out, workers=workers, report=lambda done, total: report(done, total, "")
        )
    typer.echo(json_text(result.to_dict()))
