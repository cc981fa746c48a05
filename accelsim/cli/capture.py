"""``accelsim capture``: a PyTorch module of yours as a workload file."""

from __future__ import annotations

from dataclasses import replace

from accelsim.cli.result_writer import ResultWriter, with_output

__all__ = ["capture"]


@with_output
def capture(
    output: ResultWriter,
    target: str,
    training: bool = False,
    optimizer: str | None = None,
    merge_attention: bool = True,
    precision: str | None = None,
    name: str | None = None,
) -> None:
    """Capture a torch.nn.Module without allocating its weights; --out saves it for estimate and
    compare.
    """
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
    out = output.out
    if out is not None:
        from accelsim.report.output import write_file

        write_file(out, workload.save, force=output.force)
        output.note(f"wrote {out}; use it with: accelsim estimate {out} --device NAME")
    document = workload_document(workload)
    replace(output, out=None).emit(document, lambda: workload_view(document))
