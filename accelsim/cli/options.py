"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelsim.report.formats import OutputFormat

__all__ = [
    "BatchOption",
    "DeviceFileOption",
    "ExecutionOption",
    "ForceOption",
    "FormatOption",
    "HostOption",
    "ImageSizeOption",
    "OptimizerOption",
    "OutOption",
    "OutputLenOption",
    "PrecisionOption",
    "QuietOption",
    "SeqLenOption",
    "SparseOption",
    "TierOption",
    "UnfusedOption",
    "UsdPerHourOption",
]

FormatOption = Annotated[OutputFormat, typer.Option("--format", help="How the result is written.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the result to this new file.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Let --out replace an existing file.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result.")]

BatchOption = Annotated[int | None, typer.Option("--batch", help="Samples or sequences per batch.")]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="fp64, fp32, tf32, fp16, bf16, fp8, fp4, int16, int8 or int4 (weights only); "
        "the device's usual if none.",
    ),
]
ExecutionOption = Annotated[
    str | None,
    typer.Option(
        "--execution", metavar="HOW", help="How operators are issued: eager, graph or compiled."
    ),
]
HeapOption = Annotated[
    str,
    typer.Option(
        "--heap",
        metavar="HOW",
        help="Memory of a calibrated CPU: default, or kept where the allocator keeps "
        "what is freed.",
    ),
]
SeqLenOption = Annotated[int | None, typer.Option("--seq-len", help="Input tokens per sequence.")]
OutputLenOption = Annotated[
    int | None,
    typer.Option("--output-len", help="Tokens generated per sequence; 0 for one forward pass."),
]
ImageSizeOption = Annotated[
    int | None, typer.Option("--image-size", help="Side of the image, in pixels.")
]
OptimizerOption = Annotated[
    str,
    typer.Option(
        "--optimizer", metavar="NAME", help="Of training: sgd, momentum, adam, adamw or lamb."
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="DEVICE",
        help="Device that runs operators the other cannot; transfers are charged.",
    ),
]
SparseOption = Annotated[
    bool,
    typer.Option(
        "--sparse-weights", help="Weights have the structured sparsity the chip has a rate for."
    ),
]
UnfusedOption = Annotated[
    bool,
    typer.Option(
        "--unfused-attention", help="Attention writes its scores to memory, without a fused kernel."
    ),
]
TierOption = Annotated[
    str,
    typer.Option(
        "--tier",
        metavar="TIER",
        help="Parameters: best (the device's own where there are any), spec, fitted or measured.",
    ),
]
UsdPerHourOption = Annotated[
    float | None,
    typer.Option("--usd-per-hour", help="Own price of the device, instead of an offer's."),
]
DeviceFileOption = Annotated[
    list[Path] | None,
    typer.Option("--device-file", metavar="FILE", help="Device profile of yours (YAML or JSON)."),
]
