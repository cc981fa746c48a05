"""The operator row that stands for a measured call, stored with its time.

The call itself was captured when it was measured (`measurement.captured_rows`), so that fitting
needs no description of operators of its own, and no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from accelsim.calibration.run_file import Measurement
    from accelsim.workloads.graph import OperatorGraph

__all__ = ["MeasuredRow", "measured_graph"]


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One operator as a captured graph has it.

    Attributes:
        name: Operator name.
        kind: Label of its `OperatorKind`.
        phase: Label of its `Phase`.
        dims: Dimensions in the order of ``DIMENSIONS[kind]``.
        flop: FLOP (multiply-add = 2).
        read_bytes: Activation bytes read.
        write_bytes: Bytes written.
        weight_bytes: Parameter bytes read.
    """

    name: str
    kind: str
    phase: str
    dims: tuple[int, ...]
    flop: float
    read_bytes: float
    write_bytes: float
    weight_bytes: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the plain values of a run file.

        Raises:
            TypeError: If a field is missing or not known.
        """
        return cls(**{**data, "dims": tuple(data["dims"])})


def measured_graph(measurements: Sequence[Measurement]) -> OperatorGraph:
    """One row per measurement, chained.

    Args:
        measurements: Measurements whose ``row`` is known.
    """
    from accelsim.workloads.graph import OperatorGraph
    from accelsim.workloads.operator import DIMENSIONS, OperatorKind

    rows = [m.row for m in measurements if m.row is not None]
    columns: dict[str, Any] = {
        name: [getattr(row, name) for row in rows] for name in MeasuredRow.__slots__
    }
    widths = [len(DIMENSIONS[OperatorKind[row.kind.upper()]]) for row in rows]
    columns["dims"] = [
        [*row.dims, *(0,) * (width - len(row.dims))]
        for row, width in zip(rows, widths, strict=True)
    ]
    columns["dtype"] = [m.case.dtype for m in measurements]
    columns["path"] = [""] * len(rows)
    columns["saved_bytes"] = [0.0] * len(rows)
    columns["dependencies"] = [[place - 1] if place else [] for place in range(len(rows))]
    return OperatorGraph.from_dict(columns)
