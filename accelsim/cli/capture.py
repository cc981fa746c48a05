"""``accelsim capture``: a PyTorch module or an ONNX network of yours as a workload file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from accelsim.cli.progress import progress_bar
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError


@with_output
def capture(
    output: ResultWriter,
    target: str,
    training: bool = False,
    optimizer: str | None = None,
    merge_attention: bool = True,
    precision: str | None = None,
    name: str | None = None,
    given: list[str] | None = None,
) -> None:
    """Capture a torch.nn.Module or an ONNX file without reading its weights; --out saves it for
    estimate and compare. A module is imported: its code runs, and Python files of the working
    folder can be imported with it.
    """
    from accelsim.report.workloads import workload_document, workload_view
    from accelsim.workloads.capture.onnx.door import capture_onnx, parse_shapes
    from accelsim.workloads.capture.torch.module import capture_target

    is_file = target.lower().endswith(".onnx")
    shapes = parse_shapes(given or [])
    if shapes and not is_file:
        allowed = "no value for a module, whose factory gives inputs"
        raise InvalidValueError("input", given[0] if given else None, allowed, "Leave it out.")
    options: dict[str, Any] = {"training": training, "optimizer": optimizer, "name": name}
    options |= {} if precision is None else {"precision": precision}
    options |= {"merge_attention": merge_attention}
    with progress_bar("capturing", unit="operators", quiet=output.quiet) as told:
        if is_file:
            workload = capture_onnx(target, shapes, progress=told, **options)
        else:
            options["name"] = name or target.rpartition(":")[2]
            workload = capture_target(target, progress=told, **options)
    out = output.out
    if out is not None:
        from accelsim.files.output import write_file

        write_file(out, workload.save, force=output.force)
        output.wrote(out, f"; use it with: accelsim estimate {out} --device NAME")
    document = workload_document(workload)
    replace(output, out=None).emit(document, lambda: workload_view(document))
