"""``accelsim capture``: a PyTorch module or an ONNX network of yours as a workload file."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.files.formats import OutputFormat
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Document


@frozen
class CaptureOptions:
    """How a module is captured."""

    training: bool = option("Capture a training step.", False)
    optimizer: str | None = option(
        "Optimizer of training: sgd, momentum, adam, adamw or lamb. Default: adamw.", metavar="NAME"
    )
    precision: str | None = option(
        "Number format: fp32, tf32, fp16, bf16, int8; quantised weights fp8, "
        "mxfp4, nvfp4, w8a8, w8a16, w4a16, nf4; llama.cpp's q4_k_m ... Default: "
        "the published or usual one.",
        metavar="NAME",
    )
    name: str | None = option("Name of the workload. Default: the factory's name.")


@with_output
def capture(
    output: ResultWriter,
    how: Annotated[Document, CaptureOptions],
    target: str = argument(
        "pkg.module:factory; the factory returns (module, example inputs). Or FILE.onnx."
    ),
    merge_attention: bool = option(
        "Treat attention that the module writes out as the fused kernel; eager "
        "PyTorch runs it unfused.",
        True,
        flags="--merge-attention/--no-merge-attention",
    ),
    input_shapes: list[str] | None = option(
        "Sizes of an input of an ONNX file, name=1x3x224x224; may be repeated.",
        metavar="NAME=SIZES",
        flags="--input",
    ),
) -> None:
    """Capture a torch.nn.Module or an ONNX file without reading its weights; --out saves it for
    estimate and compare. A module is imported: its code runs, and Python files of the working
    folder can be imported with it.
    """
    from accelsim.report.workloads import workload_document, workload_view
    from accelsim.workloads.capture.onnx.door import capture_onnx, parse_shapes
    from accelsim.workloads.capture.torch.module import capture_target

    is_file = target.lower().endswith(".onnx")
    shapes = parse_shapes(input_shapes or [])
    if shapes and not is_file:
        allowed = "no value for a module, whose factory gives inputs"
        raise InvalidValueError(
            "input", input_shapes[0] if input_shapes else None, allowed, "Leave it out."
        )
    options = how | {"merge_attention": merge_attention}
    with output.progress("capturing", "operators") as report:
        if is_file:
            workload = capture_onnx(target, shapes, progress=report, **options)
        else:
            options["name"] = options.get("name") or target.rpartition(":")[2]
            workload = capture_target(target, progress=report, **options)
    out = output.out
    if out is not None:
        from accelsim.files.output import write_file

        write_file(out, workload.save, force=output.force)
        output.wrote(out, f"; use it with: accelsim estimate {out} --device NAME")
    document = workload_document(workload)
    written = replace(output, out=None, output_format=OutputFormat.TABLE) if out else output
    written.emit(document, workload_view)
