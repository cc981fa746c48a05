"""``accelsim capture``: a PyTorch module of yours as a workload file."""

from __future__ import annotations

from typing import Annotated

import typer

from accelsim.cli import options as opt
from accelsim.cli.result_writer import ResultWriter
from accelsim.report.formats import OutputFormat

__all__ = ["capture"]


def capture(
    target: Annotated[
        str,
        typer.Argument(help="pkg.module:factory; the factory returns (module, example inputs)."),
    ],
    training: Annotated[bool, typer.Option("--training", help="Capture a training step.")] = False,
    optimizer: Annotated[
        str | None,
        typer.Option(
            "--optimizer", metavar="NAME", help="Of training: sgd, momentum, adam, adamw or lamb."
        ),
    ] = None,
    merge_attention: Annotated[
        bool,
        typer.Option(
            help="Take attention that the module writes out for the fused kernel; "
            "eager PyTorch runs it apart."
        ),
    ] = True,
    precision: opt.PrecisionOption = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the workload; the factory's if left out.")
    ] = None,
    output_format: opt.FormatOption = OutputFormat.TABLE,
    out: opt.OutOption = None,
    force: opt.ForceOption = False,
    quiet: opt.QuietOption = False,
) -> None:
    """Capture a torch.nn.Module without allocating its weights; --out saves it for estimate and
    compare.
    """
    output = ResultWriter(output_format, None, force, quiet)
    if out is not None:
        from accelsim.report.output import check_output

        check_output(out, force=force)
    from accelsim.report.workloads import workload_document, workload_view
    from accelsim.workloads.capture.module import capture_target

    policy = {} if precision is None else {"precision": precision}
    label = name or target.rpartition(":")[2]
    workload = capture_target(
        target,
        training=training,
        optimizer=optimizer,
        name=label,
        merge_attention=merge_attention,
        **policy,
    )
    if out is not None:
        from accelsim.report.output import write_file

        write_file(out, workload.save, force=force)
        output.note(f"wrote {out}; use it with: accelsim estimate {out} --device NAME")
    document = workload_document(workload)
    output.emit(document, lambda: workload_view(document))
