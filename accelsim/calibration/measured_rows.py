"""The operator row that stands for a measured call, stored with its time.

The call itself was captured when it was measured (`measurement.captured_rows`), so that fitting
needs no description of operators of its own, and no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `to_dict`'s form.

        Raises:
            TypeError: If a field is missing or not known.
        """
        return cls(**{**data, "dims": tuple(data["dims"])})


def measured_graph(measurements: Sequence[Measurement]) -> OperatorGraph:
    """One row per measurement, chained.

    Args:
        measurements: Measurements whose ``row`` is known.
    """
    import numpy as np

    from accelsim.workloads.dtype import Dtype
    from accelsim.workloads.graph import OperatorGraph
    from accelsim.workloads.operator import MAX_DIMENSIONS, OperatorKind, Phase

    rows = [m.row for m in measurements if m.row is not None]
    count = len(rows)
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    for place, row in enumerate(rows):
        dims[place, : len(row.dims)] = row.dims
    dtypes = [Dtype[m.case.dtype.upper()] for m in measurements]
    columns = ("flop", "read_bytes", "write_bytes", "weight_bytes")
    floats: dict[str, Any] = {
        name: np.array([getattr(row, name) for row in rows], dtype=float) for name in columns
    }
    return OperatorGraph(
        kind=np.array([OperatorKind[row.kind.upper()] for row in rows], dtype=np.int16),
        dims=dims,
        dtype=np.array(dtypes, dtype=np.int8),
        phase=np.array([Phase[row.phase.upper()] for row in rows], dtype=np.int8),
        **floats,
        saved_bytes=np.zeros(count),
        name=tuple(row.name for row in rows),
        path=("",) * count,
        dependency_offset=np.maximum(np.arange(count + 1, dtype=np.int64) - 1, 0),
        dependency=np.arange(max(count - 1, 0), dtype=np.int64),
    )
