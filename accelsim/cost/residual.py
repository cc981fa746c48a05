"""How far measured operators lie from the model, by operator family: the source of every interval.

A family is an operator kind in a format ("gemm fp32"). Its residuals ln(measured / predicted) have a part that all rows of
the family on one device share (a bias: it does not average out over a model) and a part of each row's own (it does).
Outside the range of sizes the residuals were taken from, nobody has measured the model's error: the spread grows with the
distance, in decades of arithmetic or traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import ProfileError
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

__all__ = [
    "LONG_S",
    "FamilyResidual",
    "RowSpread",
    "family_name",
    "family_rows",
    "read_families",
    "row_spread",
    "run_log_sigma",
]

#: Added standard deviation of ln(time) per decade outside the measured range. Estimate: an error of 15 % per factor of ten.
_SIGMA_PER_DECADE = 0.15
_TINY = 1.0


@dataclass(frozen=True, slots=True)
class FamilyResidual:
    """Residuals of one operator family.

    Attributes:
        rows: Measured rows behind them.
        log_sigma: Spread of ln(measured / predicted) of one row: its 90th percentile over the normal's.
        long_log_sigma: The same of rows longer than `LONG_S`, which say more of the kernel than of the time to issue it.
        shared_log_sigma: Part of it that all rows of the family on one device share, <= log_sigma.
        median_ape_fraction: Median error of the rows.
        p90_ape_fraction: 90th percentile of their errors.
        flop: Least and most FLOP of a row, 1st and 99th percentile.
        bytes: Least and most bytes of a row, likewise.
    """

    rows: int
    log_sigma: float
    long_log_sigma: float
    shared_log_sigma: float
    median_ape_fraction: float
    p90_ape_fraction: float
    flop: tuple[float, float]
    bytes: tuple[float, float]

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> FamilyResidual:
        """Read an entry of a parameter file.

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field is no number.
            ValueError: If a number is negative or a range is not two numbers.
        """
        filled = {"long_log_sigma": data["log_sigma"], **data}
        numbers = [float(filled[name]) for name in _NUMBERS]
        ranges = [tuple(float(edge) for edge in data[name]) for name in ("flop", "bytes")]
        if min(numbers) < 0 or any(len(r) != 2 or not 0 <= r[0] <= r[1] for r in ranges):
            raise ValueError("numbers must be >= 0 and ranges rise")
        shared = min(numbers[1:4])
        return cls(int(numbers[0]), numbers[1], numbers[2], shared, *numbers[4:], *ranges)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, Any]:
        """The entry of a parameter file; `from_mapping` reads it back."""
        return {name: getattr(self, name) for name in _NUMBERS} | {
            "flop": list(self.flop),
            "bytes": list(self.bytes),
        }


_NUMBERS = (
    "rows",
    "log_sigma",
    "long_log_sigma",
    "shared_log_sigma",
    "median_ape_fraction",
    "p90_ape_fraction",
)
#: Length of a row from which on its family's spread of long rows holds.
LONG_S = 5e-4


@dataclass(frozen=True, slots=True, eq=False)
class RowSpread:
    """Spread of each row of a graph; every column has shape (n,).

    Attributes:
        log_sigma: Standard deviation of ln(true / predicted).
        shared_log_sigma: Part that rows of one family share.
        extrapolation_decades: Distance from the measured range; 0 inside, and where no range is known.
    """

    log_sigma: FloatArray
    shared_log_sigma: FloatArray
    extrapolation_decades: FloatArray


def read_families(path: Path, entries: Any) -> dict[str, FamilyResidual]:
    """The section ``families`` of a parameter file, which may be missing.

    Raises:
        ProfileError: If an entry is damaged.
    """
    try:
        return {name: FamilyResidual.from_mapping(entry) for name, entry in (entries or {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProfileError(str(path), [f"families: {error}"]) from None


def run_log_sigma(
    kind: NDArray[np.integer[Any]], time_s: FloatArray, log_sigma: FloatArray, shared_log_sigma: FloatArray | None
) -> float:
    """Standard deviation of ln(true / predicted) of the sum of rows.

    What a kind's rows share adds linearly, over kinds in quadrature; what each shape has of its own adds in quadrature over
    the distinct shapes (rows of one kind that take the same time are one shape).

    Args:
        kind: Operator kinds, shape (n,).
        time_s: Times of all repeats of each row, shape (n,).
        log_sigma: Spread of each row.
        shared_log_sigma: Part that rows of one kind share; all of it where None.
    """
    total = float(time_s.sum())
    if not total:
        return 0.0
    shared = log_sigma if shared_log_sigma is None else shared_log_sigma
    by_kind = np.bincount(kind, weights=time_s * shared)
    own = np.sqrt(np.maximum(log_sigma**2 - shared**2, 0.0))
    order = np.lexsort((time_s, kind))
    changes = (np.diff(kind[order]) != 0) | (np.diff(time_s[order]) != 0)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(changes) + 1])
    by_shape = np.add.reduceat((time_s * own)[order], starts)
    return float(np.hypot(np.linalg.norm(by_kind / total), np.linalg.norm(by_shape / total)))


def family_name(kind: int, dtype: int) -> str:
    """Family of an operator kind in a format: "batched_gemm fp16"."""
    return f"{OperatorKind(kind).label} {Dtype(dtype).label}"


def family_rows(graph: OperatorGraph) -> dict[str, Any]:
    """Row indices of each family of a graph."""
    code = graph.kind.astype(np.int64) * 256 + graph.dtype
    return {family_name(c // 256, c % 256): np.flatnonzero(code == c) for c in np.unique(code).tolist()}


def row_spread(
    graph: OperatorGraph, families: Mapping[str, FamilyResidual], default_log_sigma: FloatArray, time_s: FloatArray
) -> RowSpread:
    """Spread of every row of a graph.

    Args:
        graph: n operators.
        families: Residuals by family.
        default_log_sigma: Spread of rows whose family has none, shape (n,); taken as shared by all of a kind.
        time_s: Predicted times, shape (n,).
    """
    sigma = np.array(default_log_sigma, dtype=np.float64)
    shared, beyond = sigma.copy(), np.zeros(len(graph))
    for name, rows in family_rows(graph).items() if families else ():
        known = families.get(name)
        if known is None:
            continue
        decades = np.maximum(
            _decades_outside(graph.flop[rows], known.flop), _decades_outside(graph.bytes[rows], known.bytes)
        )
        extra = _SIGMA_PER_DECADE * decades
        beyond[rows] = decades
        own = np.where(time_s[rows] > LONG_S, known.long_log_sigma, known.log_sigma)
        sigma[rows] = np.hypot(own, extra)
        shared[rows] = np.hypot(known.shared_log_sigma, extra)
    return RowSpread(sigma, shared, beyond)


def _decades_outside(size: FloatArray, known: tuple[float, float]) -> FloatArray:
    low, high = (np.log10(max(edge, _TINY)) for edge in known)
    own = np.log10(np.maximum(size, _TINY))
    outside: FloatArray = np.maximum(np.maximum(low - own, own - high), 0.0)
    return outside
