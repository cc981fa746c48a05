"""Reads SCALE-Sim topology files, convolutional and GEMM, as operator graphs.

A convolution row is name, input height and width, filter height and width, channels, filters,
stride (one or two) and, in version 3, a sparsity ratio "N:M"; a GEMM row is name, M, N, K. A layer
whose name holds "DP" is depthwise: every channel has its own filters. Inputs are stated with their
padding. Images run one at a time. A window that would hang over the edge is left out, where
SCALE-Sim rounds the number of output pixels up. Format: scalesim/topology_utils.py of SCALE-Sim v2
(013c54ea) and v3.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from accelsim.dtype import precision as find_precision
from accelsim.errors import ProfileError
from accelsim.files.datafile import read_text
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import OperatorGraph

_MAX_BYTES = 1_000_000
_LARGEST = 10**7
_CONV = (
    "input height",
    "input width",
    "filter height",
    "filter width",
    "channels",
    "filters",
    "stride height",
)
_GEMM = ("M", "N", "K")


def read_scalesim_topology(path: str | Path, *, precision: str = "int8") -> OperatorGraph:
    """Read a topology file.

    Args:
        path: CSV file.
        precision: Format of the operands.

    Raises:
        ProfileError: If it cannot be read, or naming each line that is wrong.
    """
    text = read_text(Path(path), _MAX_BYTES)
    return parse_scalesim_topology(text, str(path), precision=precision)


def parse_scalesim_topology(
    text: str, label: str = "<topology>", *, precision: str = "int8"
) -> OperatorGraph:
    """Parse the text of a topology file; arguments and errors of `read_scalesim_topology`."""
    try:
        lines = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise ProfileError(label, [f"not CSV: {error}"]) from None
    rows = [(number, [cell.strip() for cell in cells]) for number, cells in enumerate(lines, 1)]
    rows = [
        (number, cells[:-1] if cells[-1] == "" else cells) for number, cells in rows if any(cells)
    ]
    if len(rows) < 2:
        raise ProfileError(label, ["no layers: expected a header line and one line per layer"])
    builder = GraphBuilder(find_precision(precision))
    write = _gemm if _is_gemm(rows[0][1]) else _conv
    problems = [p for number, cells in rows[1:] for p in _write(builder, write, number, cells)]
    if problems:
        raise ProfileError(label, problems[:20])
    return builder.build()


Writer = Callable[[GraphBuilder, str, list[int]], str]


def _write(builder: GraphBuilder, write: Writer, number: int, cells: Sequence[str]) -> list[str]:
    """Append one layer, or say what is wrong with its line."""
    names = _GEMM if write is _gemm else _CONV
    layer = cells[0] or "without a name"
    if len(cells) - 1 < len(names):
        return [
            f"line {number}, layer {layer!r}: {len(cells) - 1} numbers, expected {', '.join(names)}"
        ]
    values: list[int] = []
    for place, cell in enumerate(cells[1:]):
        name = names[place] if place < len(names) else "stride width"
        if ":" in cell and place >= len(names):  # version 3's sparsity; weights are dense here
            continue
        if not (cell.isascii() and cell.isdigit()) or not 1 <= int(cell[:12]) <= _LARGEST:
            return [
                (
                    f"line {number}, layer {layer!r}, {name}: {cell[:40]!r}; expected a whole "
                    f"number, "
                    f"1 to {_LARGEST:,}"
                )
            ]
        values.append(int(cell))
    problem = write(builder, layer, values)
    return [f"line {number}, layer {layer!r}: {problem}"] if problem else []


def _is_gemm(header: Sequence[str]) -> bool:
    """GEMM files head their columns Layer, M, N, K; others state filter sizes."""
    return [cell.upper() for cell in header[1:4]] == ["M", "N", "K"]


def _gemm(builder: GraphBuilder, layer: str, sides: list[int]) -> str:
    m, n, k = sides[:3]
    builder.linear(builder.input(m, k), n, bias=False, name=layer, at=layer)
    return ""


def _conv(builder: GraphBuilder, layer: str, sides: list[int]) -> str:
    height, width, down, across, channels, filters, stride = sides[:7]
    step = (stride, sides[7] if len(sides) > 7 else stride)
    if down > height or across > width:
        return (
            f"filter {down} x {across} larger than its input {height} x {width}; state the "
            f"input with its padding"
        )
    groups = channels if "DP" in layer else 1
    builder.conv(
        builder.input(1, channels, height, width),
        filters * groups,
        (down, across),
        stride=step,
        padding=0,
        groups=groups,
        name=layer,
        at=layer,
    )
    return ""
