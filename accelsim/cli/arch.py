"""``accelsim arch``: explore designs of matrix arrays for a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from accelsim.cli.progress import progress_bar
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InvalidValueError
from accelsim.exploration.array_question import ArrayQuestion
from accelsim.frozen import frozen
from accelsim.option import argument, items, option

if TYPE_CHECKING:
    from accelsim.cost.systolic.designs import ArrayDesign

arch = typer.Typer(
    name="arch", help="Explore designs of matrix arrays (systolic ASICs).", no_args_is_help=True
)
_NOTE = (
    "one forward pass; area of arrays, scratchpads and vector lanes; "
    "* nothing else is better in {} at once"
)
_PEAKS_NOTE = (
    "TFLOP/s (TOPS); rate: operations per element over one multiply-add; "
    "~ array shape chosen to match its peak"
)


@arch.callback()
def _group() -> None:
    """Explore designs of matrix arrays (systolic ASICs)."""


@frozen
class Grid:
    """Designs: every combination."""

    array: str = option(
        "Array shapes, such as 16x16,32x64.", "16x16,32x32,64x64,128x128,256x256", "RxC,..."
    )
    dataflow: str = option("os, ws, is.", "os,ws,is", "D,...")
    sram: str = option(
        "Scratchpad per operand, or inputs/weights/outputs, in KiB.", "1024/1024/512", "KIB,..."
    )
    bandwidth: str | None = option("Of main memory, in GB/s; 100 if none.", metavar="GB/S,...")
    count: str = option("Arrays per chip.", "1", "N,...")
    clock_hz: float = option("Array clock.", 1e9, flags="--clock-mhz", scale=1e6)
    pipelined: bool = option("Folds overlap their fills, as in TPUs.", False)
    density: float = option(
        "Non-zero share of structured sparse weights.", 1.0, flags="--weight-density"
    )

    def designs(self) -> Sequence[ArrayDesign]:
        """All of them."""
        from accelsim.exploration.architecture import dataflow_named, design_grid

        return design_grid(
            [_pair(item) for item in items("--array", self.array)],
            [dataflow_named(item) for item in items("--dataflow", self.dataflow)],
            [_srams(item) for item in items("--sram", self.sram)],
            _rates(self.bandwidth or "100"),
            counts=[_whole("--count", item) for item in items("--count", self.count)],
            clock_hz=self.clock_hz,
            pipelined=self.pipelined,
            weight_density_fraction=self.density,
        )


@arch.command("sweep")
@with_output
def arch_sweep(
    output: ResultWriter,
    grid: Grid,
    question: ArrayQuestion,
    model: str = argument("Workload, or a SCALE-Sim topology (.csv).", "MODEL"),
    config: list[Path] | None = option(
        "SCALE-Sim configuration, instead of array to --sram; repeatable.", metavar="FILE"
    ),
    everything: bool = option("Show all designs, not only the best.", False, flags="--all"),
) -> None:
    """Latency, energy and area of MODEL on every combination of array, dataflow, scratchpad and
    bandwidth.
    """
    from accelsim.exploration.architecture import sweep_architectures

    designs = _configured(config, question.precision, grid) if config else grid.designs()
    with progress_bar(f"{len(designs):,} designs", quiet=output.quiet):
        found = sweep_architectures(_model(model, question.precision), designs, question)
    from accelsim.report.architecture import sweep_view

    data = found.to_dict()
    note = "; ".join(filter(None, (_NOTE.format(", ".join(found.objectives)), found.area_note)))
    output.emit(
        data, lambda: sweep_view(data, everything=everything), rows=data["points"], note=note
    )


@arch.command("peaks")
@with_output
def arch_peaks(
    output: ResultWriter,
    devices: list[str] | None = argument("ASICs; all if none.", "DEVICE", None),
) -> None:
    """Quoted peaks of ASICs beside those derived from array, count and clock."""
    from accelsim.exploration.peaks import asic_peaks

    rows = [peak.to_dict() for peak in asic_peaks(devices or None)]
    from accelsim.report.architecture import peaks_view

    output.emit(rows, lambda: peaks_view(rows), note=_PEAKS_NOTE)


def _model(name: str, precision: str) -> Any:
    if not name.lower().endswith(".csv"):
        return name
    from accelsim.workloads.scalesim import read_scalesim_topology

    return read_scalesim_topology(name, precision=precision)


def _configured(files: Sequence[Path], precision: str, grid: Grid) -> list[ArrayDesign]:
    """Designs of SCALE-Sim configurations, with their own bandwidth unless one is given."""
    from accelsim.dtype import precision as find_precision
    from accelsim.exploration.architecture import design_of_config
    from accelsim.hardware.scalesim import read_scalesim_config

    rates = _rates(grid.bandwidth) if grid.bandwidth else [None]
    dtype = find_precision(precision).compute
    configs = [read_scalesim_config(file) for file in files]
    return [
        design_of_config(config, dtype, clock_hz=grid.clock_hz, bandwidth_bytes_per_s=rate)
        for config in configs
        for rate in rates
    ]


def _rates(text: str) -> list[float]:
    return [_number("--bandwidth", item) * 1e9 for item in items("--bandwidth", text)]


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(option, text, "a number") from None


def _whole(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise InvalidValueError(option, text, "a whole number")
    return int(text)


def _pair(text: str) -> tuple[int, int]:
    rows, separator, columns = text.lower().partition("x")
    if not separator:
        raise InvalidValueError("--array", text, "rows x columns, such as 32x64")
    return _whole("--array", rows), _whole("--array", columns)


def _srams(text: str) -> tuple[float, float, float]:
    sizes = [_number("--sram", part) * 1024 for part in text.split("/")]
    inputs, *others = sizes
    if len(others) not in {0, 2}:
        raise InvalidValueError("--sram", text, "one size, or inputs/weights/outputs, in KiB")
    weights, outputs = others or (inputs, inputs)
    return inputs, weights, outputs
